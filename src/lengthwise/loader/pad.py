"""Pads the samples of a batch to one length: ``PadCollator``."""

from __future__ import annotations

import bisect
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import torch

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError, DataError
from lengthwise.loader.fields import Sequences, allocate, gather_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lengthwise.core.planner import Planner
    from lengthwise.loader.fields import Field, Part

PaddingSide: TypeAlias = Literal["right", "left"]

_MASK = "attention_mask"
_LENGTHS = "lengths"
_PAD_VALUES = {"special_tokens_mask": 1}
"""Fields whose padding is by custom not 0, beside the token ids and the labels."""


@dataclass(frozen=True, slots=True)
class PadCollator:
    """A ``collate_fn`` that pads: samples are mappings, the batch is a dict of tensors.

    Fields of a sample may be tensors, numpy arrays or lists: sequences of numbers of shape
    (length,), or (length, features) as in speech. A sample's length is that of ``length_field``.
    Fields as long as the sample (in every sample of the batch) are padded together, to shape
    (num_samples, padded length, ...); a sequence of another length is padded on its own, to its
    longest. Numbers are stacked to (num_samples,); strings and other objects stay a list.

    One-dimensional integers become int64, which embeddings and losses want, Python floats torch's
    default dtype; everything else keeps its dtype, and ``dtypes`` overrides. Samples are only read.
    Every tensor is one fresh contiguous allocation, so ``pin_memory=True`` and workers do as usual.

    Args:
        pad_token_id: pads ``input_ids`` (and ``length_field``, where that is another field).
        padding_side: where the padding goes, ``"right"`` or ``"left"``.
        pad_to_multiple_of: the padded length is rounded up to a multiple of this.
        pad_to: an integer pads every batch to that length; a sequence of boundaries pads it to the
            top of its bucket, ``hi - 1`` for ``[lo, hi)``. A batch above the last boundary is
            padded to its own longest. For a plan's ``pad_to_boundary`` use :meth:`for_sampler`.
        max_length: longer samples keep their first ``max_length`` tokens. Default: nothing is cut.
        label_pad_id: pads ``labels``, so that losses ignore it.
        pad_values: a pad value for other fields by name; 0 where nothing is said (1 for
            ``special_tokens_mask``).
        dtypes: a dtype for fields by name, as ``{"input_ids": torch.int32}``.
        attention_mask: make ``attention_mask`` (1 for tokens, 0 for padding; int64) where samples
            bring none. One that they bring is padded with 0.
        return_lengths: add ``lengths``, each sample's tokens before padding; int64, (num_samples,).
        length_field: the field whose length is the sample's. Default: ``input_ids``, or where
            there is none the first sequence.
        separate: fields that are padded on their own even where they are as long as the sample.

    Raises:
        ConfigError: a setting that cannot work.

    Example:
        >>> PadCollator(pad_token_id=9)([{"input_ids": [1, 2, 3]}, {"input_ids": [4]}])["input_ids"]
        tensor([[1, 2, 3],
                [4, 9, 9]])
    """

    pad_token_id: int = 0
    _: KW_ONLY
    padding_side: PaddingSide = "right"
    pad_to_multiple_of: int = 1
    pad_to: int | Sequence[int] | None = None
    max_length: int | None = None
    label_pad_id: int = -100
    pad_values: Mapping[str, float] = field(default_factory=dict)
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    attention_mask: bool = True
    return_lengths: bool = False
    length_field: str | None = None
    separate: Collection[str] = ()

    def __post_init__(self) -> None:
        """Refuse settings that cannot work; turn ``pad_to`` into an int or a tuple."""
        if self.padding_side not in get_args(PaddingSide):
            raise ConfigError(f"padding_side must be right or left, got {self.padding_side!r}")
        require_int("pad_token_id", self.pad_token_id, least=-(2**62), most=2**62)
        require_int("pad_to_multiple_of", self.pad_to_multiple_of, least=1)
        if self.max_length is not None:
            require_int("max_length", self.max_length, least=1)
        if isinstance(self.separate, str):
            raise ConfigError(f"separate must be a collection of names, got {self.separate!r}")
        object.__setattr__(self, "pad_to", _checked_pad_to(self.pad_to))

    @classmethod
    def for_sampler(cls, sampler: Any, pad_token_id: int = 0, **options: Any) -> PadCollator:
        """The collator whose batches have exactly the padded lengths that the plan counts.

        Args:
            sampler: a batch sampler, or a :class:`~lengthwise.core.planner.Planner`.
            pad_token_id: pads ``input_ids``.
            **options: any other argument of the class that the plan does not decide.

        Raises:
            ConfigError: an option that the plan decides.
        """
        planner = getattr(sampler, "planner", sampler)
        limits = planner.config.limits
        cut = planner.config.oversize == "truncate"
        decided: dict[str, Any] = {
            "pad_to_multiple_of": limits.pad_to_multiple_of,
            "pad_to": _planned_tops(planner) if planner.config.pad_to_boundary else None,
            "max_length": limits.longest_allowed if cut else None,
        }
        clash = sorted(decided.keys() & options.keys())
        if clash:
            raise ConfigError(f"the plan decides {', '.join(clash)}; leave it out here")
        return cls(pad_token_id, **decided, **options)

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch: a tensor for each field of numbers, a list for any other.

        Raises:
            DataError: samples that make no batch, or are longer than ``pad_to``.
        """
        fields = gather_fields(samples, self.dtypes)
        lead = self._lead(fields)
        if lead is None:
            return {name: self._alone(value) for name, value in fields.items()}
        lengths = lead.lengths
        keep = self.max_length
        kept = lengths if keep is None else [min(length, keep) for length in lengths]
        width = self._padded_length(max(kept))
        batch: dict[str, Any] = {}
        for name, value in fields.items():
            if isinstance(value, Sequences) and self._goes_along(value, lengths):
                parts = [p[:n] for p, n in zip(value.parts, kept, strict=True)]
                batch[name] = self._pad(value, parts, width, is_lead=value is lead)
            else:
                batch[name] = self._alone(value)
        self._add_mask_and_lengths(batch, kept, width)
        return batch

    def _lead(self, fields: dict[str, Field]) -> Sequences | None:
        """The field whose lengths are the samples'; None if no field is a sequence."""
        if self.length_field is not None:
            named = fields.get(self.length_field)
            if not isinstance(named, Sequences):
                raise DataError(
                    f"length_field={self.length_field!r} is no field of sequences; the samples "
                    f"have {', '.join(fields)}"
                )
            return named
        sequences = {n: value for n, value in fields.items() if isinstance(value, Sequences)}
        return sequences.get("input_ids", next(iter(sequences.values()), None))

    def _goes_along(self, value: Sequences, lengths: list[int]) -> bool:
        return value.name not in self.separate and value.lengths == lengths

    def _alone(self, value: Field) -> Any:
        if isinstance(value, Sequences):
            return self._pad(value, value.parts, max(value.lengths), is_lead=False)
        return value

    def _padded_length(self, longest: int) -> int:
        """What a batch whose longest sample has ``longest`` tokens is padded to."""
        wanted = longest
        if isinstance(self.pad_to, int):
            wanted = self.pad_to
            if longest > wanted:
                raise DataError(
                    f"a sample has {longest:,} tokens, more than pad_to={wanted:,}; raise pad_to, "
                    f"or cut samples with max_length={wanted}"
                )
        elif self.pad_to is not None:
            bucket = bisect.bisect_right(self.pad_to, longest)
            if bucket < len(self.pad_to):
                wanted = max(longest, self.pad_to[bucket] - 1)
        step = self.pad_to_multiple_of
        return -(-wanted // step) * step

    def _pad_value(self, name: str, *, is_lead: bool) -> float:
        if name in self.pad_values:
            return self.pad_values[name]
        if name == "labels":
            return self.label_pad_id
        if name == "input_ids" or (is_lead and name != _MASK):
            return self.pad_token_id
        return _PAD_VALUES.get(name, 0)

    def _pad(self, value: Sequences, parts: list[Part], width: int, *, is_lead: bool) -> Any:
        fill = self._pad_value(value.name, is_lead=is_lead)
        shape = (len(parts), width, *value.trailing)
        padded, rows = allocate(value, shape, fill)
        left = self.padding_side == "left"
        for row, part in zip(rows, parts, strict=True):
            row[width - len(part) if left else 0 : width if left else len(part)] = part
        return padded

    def _add_mask_and_lengths(self, batch: dict[str, Any], kept: list[int], width: int) -> None:
        lengths = np.array(kept, np.int64)
        if self.attention_mask and _MASK not in batch:
            places = np.arange(width)
            if self.padding_side == "left":
                places = places[::-1]
            mask = (places < lengths[:, None]).astype(np.int64)
            batch[_MASK] = torch.from_numpy(mask)
        if self.return_lengths:
            if _LENGTHS in batch:
                raise DataError("return_lengths adds a field 'lengths', but the samples have one")
            batch[_LENGTHS] = torch.from_numpy(lengths)


def _planned_tops(planner: Planner) -> tuple[int, ...] | None:
    """Boundaries whose tops are the longest planned sample of each bucket.

    A sample above the budget lies above them all; as the plan does, it is padded to its own length.
    """
    tops = planner.prepared.tops
    inside = tops[tops <= planner.config.limits.longest_allowed].tolist()
    return (0, *(top + 1 for top in inside)) if inside else None


def _checked_pad_to(pad_to: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    if pad_to is None:
        return None
    if isinstance(pad_to, (int, np.integer)):
        return require_int("pad_to", pad_to, least=1)
    try:
        edges = tuple(require_int("a boundary of pad_to", edge, least=0) for edge in pad_to)
    except TypeError:
        raise ConfigError(f"pad_to must be a length or boundaries, got {pad_to!r}") from None
    if len(edges) < 2 or any(b <= a for a, b in pairwise(edges)):
        raise ConfigError(f"pad_to needs at least two strictly rising boundaries, got {edges}")
    return edges
