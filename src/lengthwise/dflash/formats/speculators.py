"""The format of the ``speculators`` package, which vLLM serves without further settings.

The tensors are those of the native format; the config wraps the transformer and counts layers from
the embedding, so that its ``aux_hidden_state_layer_ids`` are our ``target_layer_ids`` plus one.
Fields as ``speculators`` 0.9.0 writes and reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lengthwise._version import __version__
from lengthwise.dflash.formats.files import write_checkpoint
from lengthwise.dflash.formats.layout import dtype_name
from lengthwise.dflash.formats.native import OWN_KEY
from lengthwise.dflash.formats.transformer import (
    TargetFacts,
    drafter_config,
    refuse_unsupported,
    transformer_dict,
)
from lengthwise.dflash.formats.weights import stored_tensors
from lengthwise.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import PretrainedConfig

    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.drafter import Drafter

TYPE_KEY = "speculators_model_type"
VERSION = "0.9.0"
"""Version of the package whose fields these are."""


def save_speculators(
    drafter: Drafter,
    directory: str | Path,
    target_config: PretrainedConfig | None = None,
    dtype: torch.dtype = torch.bfloat16,
    *,
    target_name: str | None = None,
) -> Path:
    """Write a drafter in the speculators format; the directory is there whole or not at all.

    Args:
        drafter: any device and dtype.
        directory: must not exist yet, or be empty.
        target_config: the target's, for its architecture and the ids of its begin and end tokens.
        dtype: of the stored tensors.
        target_name: directory or hub name of the target, which a server loads by it; default: what
            ``target_config`` says.

    Raises:
        ConfigError: the directory is not empty, the dtype is none of float32, bfloat16, float16, or
            nothing names the target.
        ModelError: the drafter holds other tensors than its config says.
    """
    target = TargetFacts.of(target_config, target_name)
    tensors = stored_tensors(drafter, dtype)
    return write_checkpoint(directory, speculators_dict(drafter.config, dtype, target), tensors)


def speculators_dict(
    config: DrafterConfig, dtype: torch.dtype, target: TargetFacts
) -> dict[str, Any]:
    """The ``config.json`` of the speculators format.

    Raises:
        ConfigError: the target has no name.
    """
    if not target.name:
        raise ConfigError(
            "the speculators format names its target, and nothing does here; give the target's "
            "directory or hub name (--target)"
        )
    proposal = {
        "proposal_type": "greedy",
        "speculative_tokens": config.block_size - 1,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "architectures": ["DFlashDraftModel"],
        TYPE_KEY: "dflash",
        "speculators_version": VERSION,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "aux_hidden_state_layer_ids": [i + 1 for i in config.target_layer_ids],
        "draft_vocab_size": config.vocab_size,
        "target_hidden_size": None,  # None: as wide as the drafter
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
        "num_target_layers": config.num_target_layers,
        "tie_word_embeddings": False,
        "dtype": dtype_name(dtype),
        "transformer_layer_config": transformer_dict(config, dtype_name(dtype), target),
        "speculators_config": {
            "algorithm": "dflash",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {
                "name_or_path": target.name,
                "architectures": list(target.architectures),
            },
        },
        OWN_KEY: {"version": __version__},
    }


def read_speculators(
    raw: Mapping[str, Any], where: str, num_target_layers: int | None = None
) -> tuple[DrafterConfig, TargetFacts]:
    """The config and the target that a speculators ``config.json`` describes.

    Args:
        raw: the file's object.
        where: the file, for messages.
        num_target_layers: of the target; files of the package itself do not say it.

    Raises:
        ModelError: another algorithm, or a field that this drafter does not compute.
    """
    if raw.get(TYPE_KEY) != "dflash":
        raise ModelError(f"{where}: {TYPE_KEY} is {raw.get(TYPE_KEY)!r}; only 'dflash' is read")
    inner = raw.get("transformer_layer_config")
    aux = raw.get("aux_hidden_state_layer_ids")
    if not isinstance(inner, dict) or not isinstance(aux, list):
        raise ModelError(
            f"{where}: a drafter needs transformer_layer_config (an object) and "
            f"aux_hidden_state_layer_ids (a list)"
        )
    refuse_unsupported({**inner, **raw, "layer_types": inner.get("layer_types")}, where)
    if 0 in aux:
        raise ModelError(
            f"{where}: aux_hidden_state_layer_ids {aux} tap the embedding (0); only outputs of "
            f"decoder layers (from 1) are tapped here"
        )
    layers = raw.get("num_target_layers") or num_target_layers
    if layers is None:
        raise ModelError(
            f"{where}: nothing says how many layers the target has, which the speculators format "
            f"leaves out; give the target (--target, or target_config)"
        )
    own = {
        "block_size": raw.get("block_size"),
        "mask_token_id": raw.get("mask_token_id"),
        "target_layer_ids": [i - 1 for i in aux],
        "num_target_layers": layers,
    }
    config = drafter_config(inner, own, where)
    _refuse_others(raw, config, where)
    return config, _target(raw, inner)


def _refuse_others(raw: Mapping[str, Any], config: DrafterConfig, where: str) -> None:
    sizes = {"draft_vocab_size": config.vocab_size, "target_hidden_size": config.hidden_size}
    for name, full in sizes.items():
        if raw.get(name) not in (None, full):
            raise ModelError(
                f"{where}: {name} is {raw[name]}, but the drafter's is {full}; it uses the "
                f"target's own embedding and head, so the two must be equal"
            )
    if raw.get("sliding_window_non_causal") and "sliding_attention" in config.layer_types:
        raise ModelError(
            f"{where}: sliding_window_non_causal is true, but sliding layers here see of their "
            f"block what is before only"
        )


def _target(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> TargetFacts:
    verifier = (raw.get("speculators_config") or {}).get("verifier") or {}
    eos = inner.get("eos_token_id")
    return TargetFacts(
        name=verifier.get("name_or_path"),
        architectures=tuple(verifier.get("architectures") or ()),
        bos_token_id=inner.get("bos_token_id"),
        eos_token_id=tuple(eos) if isinstance(eos, list) else eos,
    )
