"""The tensors of a drafter on their way to and from a file."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.formats.layout import DTYPES, tensor_shapes
from lengthwise.errors import CheckpointError, ConfigError, LengthwiseWarning, ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.drafter import Drafter

SHOWN = 4
"""How many names a message lists."""

_RELATIVES = {
    r"(attention_conv|mlp_conv|candidate_selector)\.": "DFlash 2",
    r"(^|\.)(markov|confidence)": "DSpark",
    r"(^|\.)(d2t|t2d)$": "a reduced vocabulary",
    r"(^|\.)(mask_hidden)": "a mask state of its own, which vLLM refuses too",
}
_DERIVED = re.compile(r"(^|\.)rotary_emb\.")
"""Buffers that some writers store though they follow from the config."""


def stored_tensors(drafter: Drafter, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A drafter's tensors as a file holds them: on the CPU, in one dtype, of the right names."""
    if dtype not in DTYPES.values():
        raise ConfigError(f"dtype must be {', '.join(DTYPES)}, got {dtype}")
    state = drafter.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    expected = tensor_shapes(drafter.config)
    if shapes != expected:
        odd = sorted(set(shapes.items()) ^ set(expected.items()))
        raise ModelError(f"the drafter's tensors are not those of its config: {listed(odd)}")
    return {
        name: tensor.detach()
        .to(device="cpu", dtype=dtype)
        .clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }


def fitting_tensors(
    found: Mapping[str, torch.Tensor], config: DrafterConfig, where: Path
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """A drafter's tensors in fp32, and the names of those in the file that it has no place for.

    A ``model.`` before every name is taken off. Tensors without a place are left out with a
    warning.

    Raises:
        ModelError: the file is that of a relative which computes something else.
        CheckpointError: a tensor is missing, doubled, of another shape or dtype, or not finite.
    """
    plain: dict[str, torch.Tensor] = {}
    for name, tensor in found.items():
        short = name.removeprefix("model.")
        if short in plain:
            raise CheckpointError(f"{where}: {short} is there with and without 'model.' before it")
        plain[short] = tensor
    _refuse_relatives(plain, where)
    expected = tensor_shapes(config)
    missing = sorted(set(expected) - set(plain))
    if missing:
        raise CheckpointError(f"{where}: no tensor {listed(missing)}")
    for name, shape in expected.items():
        _check(name, plain[name], shape, where)
    extra = tuple(sorted(n for n in set(plain) - set(expected) if not _DERIVED.search(n)))
    if extra:
        warnings.warn(_about_extra(extra, where), LengthwiseWarning, stacklevel=2)
    return {name: plain[name].to(torch.float32) for name in expected}, extra


def _check(name: str, tensor: torch.Tensor, shape: tuple[int, ...], where: Path) -> None:
    if tuple(tensor.shape) != shape:
        raise CheckpointError(
            f"{where}: {name} has the shape {tuple(tensor.shape)}, but the config says {shape}"
        )
    if tensor.dtype not in DTYPES.values():
        raise CheckpointError(
            f"{where}: {name} is {tensor.dtype}; only {', '.join(DTYPES)} are read, no quantised "
            f"checkpoints"
        )
    if not torch.isfinite(tensor).all():
        raise CheckpointError(f"{where}: {name} holds NaN or infinity; the training run broke")


def _refuse_relatives(names: Iterable[str], where: Path) -> None:
    for name in sorted(names):
        for pattern, what in _RELATIVES.items():
            if re.search(pattern, name):
                raise ModelError(
                    f"{where}: {name} belongs to {what}, which this drafter does not compute"
                )


def _about_extra(extra: tuple[str, ...], where: Path) -> str:
    text = f"{where}: not used, since the drafter takes embedding and head from its target: "
    if any("mask_embedding" in name for name in extra):
        text = (
            f"{where}: this drafter was trained with a mask embedding of its own; here the mask "
            f"token's row of the target's embedding stands in, so it will draft worse until it is "
            f"trained on. Not used: "
        )
    return text + ", ".join(extra)


def listed(names: Iterable[object]) -> str:
    """The first names, and how many more there are."""
    found = [str(name) for name in names]
    more = len(found) - SHOWN
    return ", ".join(found[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
