"""A batch's samples turned into fields: sequences to pad or pack, stacked scalars, anything else.

Work is done a sample at a time, never a token at a time: a list of Python numbers is converted by
one call of ``struct.pack``, which is the fastest conversion there is in the standard library and
numpy, and refuses a float among integers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

Part: TypeAlias = "npt.NDArray[Any] | torch.Tensor"
"""One sample's values of a field, time first."""

_NUMBER_KINDS = "biufc"


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """A field whose values are sequences of numbers.

    Attributes:
        name: the field's name.
        parts: one a sample, shape (length, *trailing); all numpy or all torch.
        dtype: what the batch's tensor will hold.
        trailing: the shape of one time step; ``()`` for token ids.
    """

    name: str
    parts: list[Part]
    dtype: torch.dtype
    trailing: tuple[int, ...]

    @property
    def lengths(self) -> list[int]:
        """Time steps of each sample."""
        return [len(part) for part in self.parts]


Field: TypeAlias = "Sequences | torch.Tensor | list[Any]"
"""Sequences, scalars stacked to shape (num_samples,), or other objects as they came."""


def gather_fields(
    samples: Sequence[Mapping[str, Any]], dtypes: Mapping[str, torch.dtype] | None = None
) -> dict[str, Field]:
    """The fields of a batch, in the order of the first sample's keys.

    One-dimensional integers become int64, which embeddings and losses want; Python floats take
    torch's default dtype. Everything else keeps its dtype.

    Args:
        samples: mappings with the same keys.
        dtypes: a dtype for fields by name.

    Raises:
        DataError: no samples, not mappings, different keys, or a field whose samples differ in
            kind or in the shape of a time step; the message names field and sample.
    """
    if not samples:
        raise DataError("a batch needs at least one sample, got none")
    for place, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise DataError(
                f"each sample must be a mapping of field names to values; sample {place} of the "
                f"batch is {type(sample).__name__}. Give the data set dicts, as "
                f"{{'input_ids': [...]}}."
            )
    names = list(samples[0])
    for place, sample in enumerate(samples):
        if sample.keys() != samples[0].keys():
            differ = sorted(map(str, sample.keys() ^ samples[0].keys()))
            raise DataError(
                f"the samples of a batch must have the same fields; sample {place} and sample 0 "
                f"differ in {', '.join(differ)}"
            )
    wanted = dtypes or {}
    return {
        name: _field(name, [sample[name] for sample in samples], wanted.get(name)) for name in names
    }


def allocate(value: Sequences, shape: tuple[int, ...], fill: float) -> tuple[torch.Tensor, Any]:
    """A tensor full of ``fill``, and the same memory as what the field's parts are written to.

    Parts in numpy are written through numpy, which is quicker a row and casts on the way.
    """
    first = value.parts[0]
    device = first.device if isinstance(first, torch.Tensor) else None
    tensor = torch.full(shape, fill, dtype=value.dtype, device=device)
    return tensor, tensor if isinstance(first, torch.Tensor) else tensor.numpy()


def _field(name: str, values: list[Any], wanted: torch.dtype | None) -> Field:
    kinds = [_kind(value) for value in values]
    found = set(kinds) - {"empty"}
    if len(found) > 1:
        odd = next(place for place, kind in enumerate(kinds) if kind not in ("empty", kinds[0]))
        raise DataError(
            f"field {name!r} must be of one kind in a batch: sample 0 has {_shown(values[0])}, "
            f"sample {odd} has {_shown(values[odd])}"
        )
    if found == {"other"}:
        return values
    if found == {"scalar"}:
        stacked = _stack(values)
        return stacked if wanted is None else stacked.to(wanted)
    return _sequences(name, values, wanted)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} ({_kind(value)})"


def _kind(value: Any) -> str:
    """``sequence``, ``scalar``, ``empty`` (a list without elements) or ``other``."""
    if isinstance(value, torch.Tensor):
        return "sequence" if value.ndim else "scalar"
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _NUMBER_KINDS:
            return "other"
        return "sequence" if value.ndim else "scalar"
    if isinstance(value, (list, tuple)):
        leaf = value[0] if value else None
        if leaf is None:
            return "other" if value else "empty"
        while isinstance(leaf, (list, tuple)) and leaf:
            leaf = leaf[0]
        numbers = isinstance(leaf, (list, tuple)) or _kind(leaf) in ("scalar", "sequence")
        return "sequence" if numbers else "other"
    number = isinstance(value, (int, float, complex, np.number, np.bool_))
    return "scalar" if number else "other"


def _stack(values: list[Any]) -> torch.Tensor:
    if all(isinstance(value, torch.Tensor) for value in values):
        dtype = reduce(torch.promote_types, (value.dtype for value in values))
        stacked = torch.stack([value.to(dtype) for value in values])
    elif any(isinstance(value, (torch.Tensor, np.ndarray, np.generic)) for value in values):
        stacked = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
    else:
        stacked = torch.tensor(values)
    return stacked.long() if _is_integer(stacked.dtype) else stacked


def _sequences(name: str, values: list[Any], wanted: torch.dtype | None) -> Sequences:
    parts = [_part(name, place, value) for place, value in enumerate(values)]
    if any(isinstance(part, torch.Tensor) for part in parts) or not _numpy_knows(wanted):
        parts = [torch.as_tensor(np.array(p)) if isinstance(p, np.ndarray) else p for p in parts]
    # An empty list has no dtype of its own, and no shape of a time step.
    told = [place for place, value in enumerate(values) if _kind(value) != "empty"]
    shapes = {tuple(parts[place].shape[1:]) for place in told}
    if len(shapes) > 1:
        odd = next(place for place in told if parts[place].shape[1:] != parts[told[0]].shape[1:])
        raise DataError(
            f"field {name!r} must have one shape of a time step in a batch: sample {told[0]} is "
            f"{tuple(parts[told[0]].shape)}, sample {odd} is {tuple(parts[odd].shape)}; only the "
            f"first dimension may differ"
        )
    trailing = shapes.pop() if shapes else ()
    parts = [p if p.shape[1:] == trailing else p.reshape(0, *trailing) for p in parts]
    dtype = _common_dtype([parts[place] for place in told])
    if _is_integer(dtype) and not trailing:
        dtype = torch.int64
    from_lists = all(isinstance(values[place], (list, tuple)) for place in told)
    if from_lists and dtype == torch.float64:
        dtype = torch.get_default_dtype()
    return Sequences(name, parts, wanted or dtype, trailing)


def _part(name: str, place: int, value: Any) -> Part:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, torch.Tensor):
        try:
            return value.numpy()  # copying rows costs a third in numpy
        except (TypeError, RuntimeError):
            return value  # another device, bfloat16, or it requires a gradient
    try:
        array = _numbers(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"field {name!r} of sample {place} is no array of numbers: {error}") from (
            error
        )
    if array.dtype.kind not in _NUMBER_KINDS:
        raise DataError(f"field {name!r} of sample {place} mixes numbers with other objects")
    return array


def _numbers(values: Sequence[Any]) -> npt.NDArray[Any]:
    """A list as an array; only to be read, for it may be a view of bytes."""
    first = type(values[0]) if values else int
    code = {int: "q", float: "d"}.get(first)
    if code is not None:
        try:
            return np.frombuffer(struct.pack(f"{len(values)}{code}", *values), code)
        except struct.error:
            pass  # floats among integers, or what is no number: numpy decides
    return np.array([np.asarray(v) for v in values] if _holds_arrays(values) else values)


def _holds_arrays(values: Sequence[Any]) -> bool:
    return isinstance(values[0], (torch.Tensor, np.ndarray))


def _common_dtype(parts: list[Part]) -> torch.dtype:
    if not parts:
        return torch.int64
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if tensors:
        return reduce(torch.promote_types, {part.dtype for part in tensors})
    common = np.result_type(*{part.dtype for part in parts if isinstance(part, np.ndarray)})
    return torch.from_numpy(np.empty(0, common.newbyteorder("="))).dtype


def _numpy_knows(dtype: torch.dtype | None) -> bool:
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True


def _is_integer(dtype: torch.dtype) -> bool:
    return dtype != torch.bool and not dtype.is_floating_point and not dtype.is_complex
