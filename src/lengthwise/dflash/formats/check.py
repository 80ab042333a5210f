"""Judge a drafter's directory as the engines will read it, from the files alone.

Engines are lenient where it hurts: SGLang skips tensors it does not know, and every reader fills
in what a config leaves out. A drafter with such a fault loads, and then little of what it drafts is
accepted. So each thing they rely on is checked here, and every export is checked before it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.dflash.formats.files import CONFIG, WEIGHTS, read_config, read_tensors
from lengthwise.dflash.formats.layout import dtype_name, tensor_shapes
from lengthwise.dflash.formats.load import misfits, num_layers
from lengthwise.dflash.formats.native import ARCHITECTURE, read_native
from lengthwise.dflash.formats.speculators import TYPE_KEY, read_speculators
from lengthwise.dflash.formats.transformer import PLAIN
from lengthwise.dflash.formats.weights import listed
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PretrainedConfig

    from lengthwise.dflash.config import DrafterConfig

TRANSFORMER_FIELDS = (
    *PLAIN,
    "model_type",
    "rope_theta",
    "rope_parameters",
    "layer_types",
    "use_sliding_window",
    "max_window_layers",
    "tie_word_embeddings",
    "dtype",
)
NATIVE_FIELDS = ("architectures", "num_target_layers", "block_size", "dflash_config")
SPECULATORS_FIELDS = (
    "architectures",
    "speculators_version",
    "block_size",
    "mask_token_id",
    "aux_hidden_state_layer_ids",
    "draft_vocab_size",
    "transformer_layer_config",
    "speculators_config",
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what is wrong with it."""

    name: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """What was checked in one directory."""

    directory: Path
    format: str
    checks: tuple[Check, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """One message for each fault; empty where engines will read what was trained."""
        return tuple(problem for check in self.checks for problem in check.problems)

    def require(self) -> None:
        """Raise where there is a fault.

        Raises:
            ModelError: names the directory and every fault.
        """
        if self.problems:
            raise ModelError(f"{self.directory}: {'; '.join(self.problems)}")


def check_export(
    directory: str | Path, target_config: PretrainedConfig | None = None
) -> CheckReport:
    """Check the files of an exported drafter, in either format.

    Args:
        directory: with ``config.json`` and ``model.safetensors``.
        target_config: the target's; where given, the drafter must fit it.

    Returns:
        Every check with its problems; ``require()`` raises if there is any.

    Raises:
        CheckpointError: a file is missing or cannot be read at all.
    """
    directory = Path(directory)
    raw = read_config(directory)
    tensors = read_tensors(directory)
    native = TYPE_KEY not in raw
    inner = raw if native else raw.get("transformer_layer_config")
    inner = inner if isinstance(inner, dict) else {}
    config, reading = _readable(raw, target_config, native=native)
    own = _native_fields(raw) if native else _speculators_fields(raw, config)
    checks = [
        Check("config is complete", tuple(_absent(raw, inner, native=native))),
        Check("config is readable", reading),
        Check("fields of the format", tuple(own)),
        Check("fields of the transformer", tuple(_transformer(inner))),
        Check("one file of weights", _single_file(directory)),
        Check("dtype", tuple(_dtypes(tensors, inner))),
        Check("weights are finite", tuple(_not_finite(tensors))),
    ]
    if config is not None:
        checks.append(Check("names and shapes of tensors", tuple(_layout(tensors, config))))
        checks.append(Check("taps", tuple(_taps(config))))
        if target_config is not None:
            checks.append(Check("fits the target", tuple(misfits(config, target_config))))
    return CheckReport(directory, "native" if native else "speculators", tuple(checks))


def _readable(
    raw: Mapping[str, Any],
    target_config: PretrainedConfig | None,
    *,
    native: bool,
) -> tuple[DrafterConfig | None, tuple[str, ...]]:
    """The config as our own reader takes it, or why it does not."""
    try:
        if native:
            return read_native(raw, CONFIG)[0], ()
        return read_speculators(raw, CONFIG, num_layers(target_config))[0], ()
    except ModelError as error:
        return None, (str(error),)


def _absent(raw: Mapping[str, Any], inner: Mapping[str, Any], *, native: bool) -> list[str]:
    missing = [name for name in TRANSFORMER_FIELDS if inner.get(name) is None]
    missing += [
        name for name in (NATIVE_FIELDS if native else SPECULATORS_FIELDS) if raw.get(name) is None
    ]
    if not missing:
        return []
    return [f"{CONFIG} lacks {', '.join(missing)}; readers would fill in defaults of their own"]


def _native_fields(raw: Mapping[str, Any]) -> list[str]:
    problems = []
    if raw.get("architectures") != [ARCHITECTURE]:
        problems.append(f"architectures must be [{ARCHITECTURE!r}], not {raw['architectures']!r}")
    extra = raw.get("dflash_config")
    if not isinstance(extra, dict):
        return [*problems, "dflash_config must be an object"]
    if raw.get("block_size") != extra.get("block_size"):
        problems.append(
            f"block_size is {raw.get('block_size')!r} at the top, which older readers take, and "
            f"{extra.get('block_size')!r} in dflash_config, which newer ones take"
        )
    problems += [
        f"dflash_config lacks {name}, which vLLM and SGLang look for there"
        for name in ("mask_token_id", "target_layer_ids")
        if extra.get(name) is None
    ]
    return problems


def _speculators_fields(raw: Mapping[str, Any], config: DrafterConfig | None) -> list[str]:
    about = raw.get("speculators_config")
    about = about if isinstance(about, dict) else {}
    methods = about.get("proposal_methods") or [{}]
    problems = []
    if about.get("algorithm") != "dflash":
        problems.append(f"speculators_config: algorithm is {about.get('algorithm')!r}, not dflash")
    if about.get("default_proposal_method") not in [m.get("proposal_type") for m in methods]:
        problems.append("speculators_config: default_proposal_method is none of proposal_methods")
    if not (about.get("verifier") or {}).get("name_or_path"):
        problems.append("speculators_config: the verifier has no name_or_path to be loaded by")
    if config is None:
        return problems
    proposed = methods[0].get("speculative_tokens")
    if proposed != config.block_size - 1:
        problems.append(
            f"speculative_tokens is {proposed}; a block of {config.block_size} drafts "
            f"{config.block_size - 1}, as its first token is the target's own"
        )
    # vLLM's reading: the tap of layer i is aux_hidden_state_layer_ids - 1.
    served = [i - 1 for i in raw["aux_hidden_state_layer_ids"]]
    if served != list(config.target_layer_ids) or min(served) < 0:
        problems.append(f"vLLM would tap the layers {served}, not {config.target_layer_ids}")
    return problems


def _transformer(inner: Mapping[str, Any]) -> list[str]:
    problems = []
    if inner.get("model_type") != "qwen3":
        problems.append(f"model_type must be 'qwen3', not {inner.get('model_type')!r}")
    if inner.get("tie_word_embeddings"):
        problems.append("tie_word_embeddings must be false: the drafter has no embedding to tie")
    rope = inner.get("rope_parameters") or {}
    kind, scaling = rope.get("rope_type", "default"), inner.get("rope_scaling") or {}
    if scaling.get("rope_type", "default") != kind:
        problems.append(
            f"rope_scaling says {scaling.get('rope_type')!r} and rope_parameters {kind!r}; "
            f"transformers 4 and 5 would read two models"
        )
    sliding = "sliding_attention" in (inner.get("layer_types") or ())
    if bool(inner.get("use_sliding_window")) != sliding:
        problems.append(
            f"use_sliding_window is {inner.get('use_sliding_window')} with layer_types "
            f"{inner.get('layer_types')}; transformers drops the window where it is false"
        )
    return problems


def _single_file(directory: Path) -> tuple[str, ...]:
    if (directory / WEIGHTS).is_file():
        return ()
    return (f"the weights are in shards; write one {WEIGHTS}",)


def _dtypes(tensors: Mapping[str, torch.Tensor], inner: Mapping[str, Any]) -> list[str]:
    wanted = inner.get("dtype")
    odd = sorted(name for name, tensor in tensors.items() if dtype_name(tensor.dtype) != wanted)
    return [f"dtype is {wanted} in {CONFIG}, but not of {listed(odd)}"] if odd else []


def _not_finite(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    odd = sorted(name for name, tensor in tensors.items() if not torch.isfinite(tensor).all())
    if not odd:
        return []
    return [f"NaN or infinity in {listed(odd)}: a broken run, or values too large for the dtype"]


def _layout(tensors: Mapping[str, torch.Tensor], config: DrafterConfig) -> list[str]:
    expected = tensor_shapes(config)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    problems = []
    if missing := sorted(set(expected) - set(found)):
        problems.append(f"no tensor {listed(missing)}; engines would leave it as it was made")
    if unknown := sorted(set(found) - set(expected)):
        problems.append(f"unknown tensor {listed(unknown)}; SGLang skips it, vLLM stops")
    problems += [
        f"{name} has the shape {found[name]}, but the config says {shape}"
        for name, shape in expected.items()
        if found.get(name, shape) != shape
    ]
    return problems


def _taps(config: DrafterConfig) -> list[str]:
    last = config.num_target_layers - 1
    if last not in config.target_layer_ids:
        return []
    told = (
        f"the last layer of the target ({last}) is tapped: trained on its output, while the dflash "
        f"package reads it after the final norm and engines do not capture it; train with taps "
        f"before it"
    )
    return [told]
