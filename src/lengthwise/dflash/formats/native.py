"""The native format: what the method's authors publish, and their package, vLLM and SGLang load.

A directory of ``config.json`` and ``model.safetensors``, without embedding and head, which are the
target's. Names and fields were read from the published checkpoints' readers: the ``dflash``
package, ``qwen3_dflash`` in vLLM, ``models/dflash`` in SGLang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lengthwise._version import __version__
from lengthwise.dflash.formats.files import write_checkpoint
from lengthwise.dflash.formats.layout import dtype_name
from lengthwise.dflash.formats.transformer import (
    TargetFacts,
    drafter_config,
    refuse_unsupported,
    transformer_dict,
)
from lengthwise.dflash.formats.weights import stored_tensors
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import PretrainedConfig

    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.drafter import Drafter

ARCHITECTURE = "DFlashDraftModel"
OWN_KEY = "lengthwise"
"""Under this key stands what only we read: our version and the target's name."""


def save_native(
    drafter: Drafter,
    directory: str | Path,
    target_config: PretrainedConfig | None = None,
    dtype: torch.dtype = torch.bfloat16,
    *,
    target_name: str | None = None,
) -> Path:
    """Write a drafter in the native format; the directory is there whole or not at all.

    Args:
        drafter: any device and dtype.
        directory: must not exist yet, or be empty.
        target_config: the target's, for the ids of its begin and end tokens and its name.
        dtype: of the stored tensors; float32 keeps every bit of a drafter in training.
        target_name: directory or hub name of the target; default: what ``target_config`` says.

    Raises:
        ConfigError: the directory is not empty, or the dtype is none of float32, bfloat16, float16.
        ModelError: the drafter holds other tensors than its config says.
    """
    target = TargetFacts.of(target_config, target_name)
    tensors = stored_tensors(drafter, dtype)
    return write_checkpoint(directory, native_dict(drafter.config, dtype, target), tensors)


def native_dict(config: DrafterConfig, dtype: torch.dtype, target: TargetFacts) -> dict[str, Any]:
    """The ``config.json`` of the native format.

    ``block_size`` stands at the top, where older readers look, and in ``dflash_config``, where
    newer ones do. No ``auto_map``: it would point at code that is not in the directory.
    """
    own: dict[str, Any] = {"version": __version__}
    if target.name:
        own |= {"target": target.name, "target_architectures": list(target.architectures)}
    return {
        "architectures": [ARCHITECTURE],
        **transformer_dict(config, dtype_name(dtype), target),
        "num_target_layers": config.num_target_layers,
        "block_size": config.block_size,
        "dflash_config": {
            "block_size": config.block_size,
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
        },
        OWN_KEY: own,
    }


def read_native(raw: Mapping[str, Any], where: str) -> tuple[DrafterConfig, TargetFacts]:
    """The config and the target that a native ``config.json`` describes.

    Raises:
        ModelError: another architecture, or a field that this drafter does not compute.
    """
    architectures = raw.get("architectures") or []
    if ARCHITECTURE not in architectures:
        raise ModelError(f"{where}: architectures is {architectures!r}; {_why(architectures)}")
    extra = raw.get("dflash_config") or {}
    if not isinstance(extra, dict):
        raise ModelError(f"{where}: dflash_config must be an object, not {extra!r}")
    for part in (raw, extra):
        refuse_unsupported({"layer_types": raw.get("layer_types"), **part}, where)
    own = {
        name: _either(raw, extra, name, where)
        for name in ("block_size", "mask_token_id", "target_layer_ids", "num_target_layers")
    }
    note = raw.get(OWN_KEY)
    note = note if isinstance(note, dict) else {}
    eos = raw.get("eos_token_id")
    target = TargetFacts(
        name=note.get("target"),
        architectures=tuple(note.get("target_architectures") or ()),
        bos_token_id=raw.get("bos_token_id"),
        eos_token_id=tuple(eos) if isinstance(eos, list) else eos,
    )
    return drafter_config(raw, own, where), target


def _why(architectures: list[str]) -> str:
    if "DFlash2DraftModel" in architectures:
        return (
            "DFlash 2 adds convolutions and a candidate selector, whose training is not "
            "published; only DFlash drafters are read"
        )
    return f"a drafter in the native format has {ARCHITECTURE}"


def _either(raw: Mapping[str, Any], extra: Mapping[str, Any], name: str, where: str) -> Any:
    """A field that readers look for in two places; both must say the same."""
    found = [part[name] for part in (extra, raw) if part.get(name) is not None]
    if not found:
        raise ModelError(f"{where}: {name} is neither at the top nor in dflash_config")
    if any(value != found[0] for value in found):
        raise ModelError(
            f"{where}: {name} is {found[1]!r} at the top and {found[0]!r} in dflash_config; "
            f"readers would differ in which they take"
        )
    return found[0]
