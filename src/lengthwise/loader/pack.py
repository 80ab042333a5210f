"""Concatenates a batch's samples into one row without padding: ``PackCollator``."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import torch

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError, DataError
from lengthwise.loader.fields import Sequences, allocate, gather_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lengthwise.core.limits import Int64Array

SegmentKeys: TypeAlias = Literal["cu_seqlens", "transformers", "none"]

_TOKENS, _LABELS, _MASK = "input_ids", "labels", "attention_mask"


@dataclass(frozen=True, slots=True)
class PackCollator:
    """A ``collate_fn`` that packs: all samples of a batch one after the other in one row.

    For models whose attention knows segments (FlashAttention's variable-length kernels, or
    anything that restarts at a position id of 0). The batch holds, with ``total`` tokens:

    - ``input_ids`` and every other field as long as it: (1, total, ...)
    - ``labels`` (1, total): the samples' own, or ``input_ids`` where they bring none. The first of
      each sample is ``label_pad_id``: a loss that shifts labels would otherwise let the last token
      of a sample predict the first of the next.
    - ``position_ids`` (1, total): from 0 in each sample; int64
    - ``cu_seqlens`` (num_samples + 1,): where samples begin, and the total; int32; and
      ``max_seqlen``, the longest sample, an int
    - ``seq_idx`` (1, total), if asked for: the sample that a token belongs to; int32

    An ``attention_mask`` of ones is left out: in a row without padding it says nothing, and
    models take its presence for a padded batch. Fields of another length stay lists of tensors,
    numbers are stacked to (num_samples,), other objects stay lists.

    Args:
        pad_token_id: fills ``input_ids`` where ``pad_to_multiple_of`` asks for filling.
        max_tokens: a row that would be longer is an error.
        pad_to_multiple_of: the row is filled up to a multiple of this by one dummy segment at its
            end, with its own entry in ``cu_seqlens``, positions from 0 and no labels.
        segment_keys: ``"cu_seqlens"`` as above; ``"transformers"`` the names of its flash attention
            arguments, ``cu_seq_lens_q``, ``cu_seq_lens_k``, ``max_length_q``, ``max_length_k``;
            ``"none"`` neither.
        return_position_ids: add ``position_ids``, unless the samples bring their own.
        return_seq_idx: add ``seq_idx``.
        mask_first_labels: False leaves the first labels, for losses that shift nothing.
        make_labels: make ``labels`` of ``input_ids`` where samples bring none.
        label_pad_id: the label that losses ignore.
        pad_values: what the dummy segment holds in other fields, by name; else 0.

    Raises:
        ConfigError: a setting that cannot work.

    Example:
        >>> batch = PackCollator()([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
        >>> batch["labels"], batch["cu_seqlens"].tolist()
        (tensor([[-100,    6,    7, -100,    9]]), [0, 3, 5])
    """

    pad_token_id: int = 0
    _: KW_ONLY
    max_tokens: int | None = None
    pad_to_multiple_of: int = 1
    segment_keys: SegmentKeys = "cu_seqlens"
    return_position_ids: bool = True
    return_seq_idx: bool = False
    mask_first_labels: bool = True
    make_labels: bool = True
    label_pad_id: int = -100
    pad_values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if self.segment_keys not in get_args(SegmentKeys):
            allowed = ", ".join(get_args(SegmentKeys))
            raise ConfigError(f"segment_keys must be one of {allowed}; got {self.segment_keys!r}")
        require_int("pad_token_id", self.pad_token_id, least=-(2**62), most=2**62)
        require_int("pad_to_multiple_of", self.pad_to_multiple_of, least=1)
        if self.max_tokens is not None:
            require_int("max_tokens", self.max_tokens, least=1)

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch; see the class for its fields.

        Raises:
            DataError: samples that make no batch, bring no ``input_ids``, come padded, have no
                token at all, or exceed ``max_tokens``.
        """
        fields = gather_fields(samples)
        tokens = fields.get(_TOKENS)
        if not isinstance(tokens, Sequences):
            raise DataError(
                f"packing needs a field 'input_ids' of token ids; got {', '.join(fields)}"
            )
        _refuse_padding(fields.pop(_MASK, None))
        lengths = np.array(tokens.lengths, np.int64)
        total = self._row_length(int(lengths.sum()))
        segments = _with_dummy(lengths, total)
        starts = np.cumsum(segments) - segments
        batch: dict[str, Any] = {}
        for name, value in fields.items():
            along = isinstance(value, Sequences) and value.lengths == tokens.lengths
            batch[name] = self._pack(value, total) if along else _unpacked(value)
        self._set_labels(batch, starts[segments > 0], int(lengths.sum()))
        self._add_segments(batch, segments, starts, total)
        return batch

    def _row_length(self, num_tokens: int) -> int:
        if num_tokens == 0:
            raise DataError("the samples of a batch hold no token at all; nothing can be packed")
        step = self.pad_to_multiple_of
        total = -(-num_tokens // step) * step
        if self.max_tokens is not None and total > self.max_tokens:
            raise DataError(
                f"the row would hold {total:,} tokens, more than max_tokens={self.max_tokens:,}; "
                f"plan batches with this max_tokens, or raise it here"
            )
        return total

    def _pack(self, value: Any, total: int) -> torch.Tensor:
        own = {_TOKENS: self.pad_token_id, _LABELS: self.label_pad_id}
        fill = {**own, **self.pad_values}.get(value.name, 0)
        packed, memory = allocate(value, (1, total, *value.trailing), fill)
        row, start = memory[0], 0
        for part in value.parts:
            row[start : start + len(part)] = part
            start += len(part)
        return packed

    def _set_labels(self, batch: dict[str, Any], starts: Int64Array, num_tokens: int) -> None:
        if _LABELS not in batch:
            if not self.make_labels:
                return
            batch[_LABELS] = batch[_TOKENS].clone()
            batch[_LABELS][:, num_tokens:] = self.label_pad_id
        labels = batch[_LABELS]
        if self.mask_first_labels and isinstance(labels, torch.Tensor) and labels.ndim > 1:
            labels[:, torch.from_numpy(starts)] = self.label_pad_id

    def _add_segments(
        self, batch: dict[str, Any], segments: Int64Array, starts: Int64Array, total: int
    ) -> None:
        if self.return_position_ids and "position_ids" not in batch:
            positions = np.arange(total) - np.repeat(starts, segments)
            batch["position_ids"] = torch.from_numpy(positions)[None]
        if self.return_seq_idx:
            owners = np.repeat(np.arange(segments.size, dtype=np.int32), segments)
            batch["seq_idx"] = torch.from_numpy(owners)[None]
        if self.segment_keys == "none":
            return
        edges = torch.from_numpy(np.append(starts, total).astype(np.int32))
        longest = int(segments.max())
        if self.segment_keys == "cu_seqlens":
            batch |= {"cu_seqlens": edges, "max_seqlen": longest}
        else:
            batch |= {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges}
            batch |= {"max_length_q": longest, "max_length_k": longest}


def _with_dummy(lengths: Int64Array, total: int) -> Int64Array:
    """Tokens of each segment, the dummy one included where there is one."""
    rest = total - int(lengths.sum())
    return np.append(lengths, rest) if rest else lengths


def _refuse_padding(mask: Any) -> None:
    if not isinstance(mask, Sequences):
        return
    for place, part in enumerate(mask.parts):
        if not bool((part != 0).all()):
            raise DataError(
                f"sample {place} of the batch comes padded (its attention_mask has zeros); packing "
                f"takes samples as they are, without padding"
            )


def _unpacked(value: Any) -> Any:
    if isinstance(value, Sequences):
        parts = [p if isinstance(p, torch.Tensor) else torch.tensor(p) for p in value.parts]
        return [part.to(value.dtype) for part in parts]
    return value
