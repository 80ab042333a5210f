"""Samples with their target's features, and batches of them in rows: padded, or packed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from lengthwise.core.limits import require_int
from lengthwise.dflash.anchors import num_valid_anchors
from lengthwise.errors import ConfigError, DataError, OversizeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One tokenised document and what the target made of it.

    Attributes:
        sample_id: its number in the data set; with the seed it decides which anchors it gets.
        input_ids: token ids, shape (T,), int64, T >= 1; best on the CPU, like the mask.
        loss_mask: which tokens are to be learnt, shape (T,), bool.
        features: the target's tapped states, one row a token, shape (T, F), floating.

    Raises:
        DataError: a shape or a type is not as above; names the sample.
    """

    sample_id: int
    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    features: torch.Tensor

    def __post_init__(self) -> None:
        """Refuse tensors that do not describe one document."""
        for name, dimensions, dtype in (
            ("input_ids", 1, torch.int64),
            ("loss_mask", 1, torch.bool),
            ("features", 2, None),
        ):
            value: torch.Tensor = getattr(self, name)
            right = value.dtype == dtype if dtype else value.is_floating_point()
            if value.ndim != dimensions or not right:
                raise DataError(
                    f"sample {self.sample_id}: {name} must have {dimensions} dimension(s) and be "
                    f"{dtype or 'floating'}; got {tuple(value.shape)} of {value.dtype}"
                )
            if len(value) != len(self.input_ids):
                raise DataError(
                    f"sample {self.sample_id}: {name} has {len(value):,} rows for "
                    f"{len(self.input_ids):,} tokens; every token needs exactly one"
                )
        if not len(self.input_ids):
            raise DataError(f"sample {self.sample_id} has no token; leave it out of the data")

    def __len__(self) -> int:
        """Its tokens, T."""
        return len(self.input_ids)

    @property
    def num_valid_anchors(self) -> int:
        """Positions a block may begin at."""
        return num_valid_anchors(self.loss_mask)


@dataclass(frozen=True, slots=True, eq=False)
class DraftBatch:
    """R rows of S columns, each with one document or several one after the other, then padding.

    Everything but ``features`` is on the CPU.

    Attributes:
        input_ids: token ids, 0 where padded; shape (R, S), int64.
        loss_mask: which tokens are to be learnt; shape (R, S), bool.
        features: the target's states, 0 where padded; shape (R, S, F).
        document_ids: which document, counted from 0 across the batch, -1 where padded; shape
            (R, S), int64.
        position_ids: the place in the document, 0 where padded; shape (R, S), int64.
        sample_ids: the sample of each document; shape (num_documents,), int64.
    """

    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    features: torch.Tensor
    document_ids: torch.Tensor
    position_ids: torch.Tensor
    sample_ids: torch.Tensor

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> DraftBatch:
        """The batch with its features on a device.

        All else stays on the CPU: what is made of ids and masks is worked out there, so nothing
        has to wait for a GPU.
        """
        return replace(self, features=self.features.to(device, non_blocking=non_blocking))

    @property
    def num_documents(self) -> int:
        """Documents in all rows."""
        return len(self.sample_ids)


def pad_rows(
    samples: Sequence[Sample], *, multiple_of: int = 1, rows_multiple_of: int = 1
) -> DraftBatch:
    """A row a sample, padded on the right to the longest.

    Args:
        samples: at least one.
        multiple_of: round the number of columns up to a multiple of this.
        rows_multiple_of: likewise the number of rows, with rows that hold padding alone. With few
            shapes, ``torch.compile`` compiles few times.

    Raises:
        DataError: no sample, or samples whose features do not go together.
    """
    return _lay([[sample] for sample in samples], multiple_of, rows_multiple_of)


def pack_rows(
    samples: Sequence[Sample],
    row_tokens: int,
    *,
    multiple_of: int = 1,
    rows_multiple_of: int = 1,
) -> DraftBatch:
    """Rows of several samples, at most ``row_tokens`` tokens each: first fit, in the given order.

    A sample goes to the first row that has room for it, else to a new one. Rows are as wide as
    the fullest of them, rounded up; ``multiple_of=row_tokens`` makes them all of one width.

    Args:
        samples: at least one.
        row_tokens: the most tokens of a row.
        multiple_of: as in :func:`pad_rows`.
        rows_multiple_of: as in :func:`pad_rows`.

    Raises:
        OversizeError: a sample is longer than a row.
        DataError: as in :func:`pad_rows`.
    """
    require_int("row_tokens", row_tokens, least=1)
    rows: list[list[Sample]] = []
    room: list[int] = []
    for sample in samples:
        if len(sample) > row_tokens:
            raise OversizeError(
                f"sample {sample.sample_id} has {len(sample):,} tokens and a row holds "
                f"row_tokens={row_tokens:,}; raise row_tokens, or leave out or cut long samples "
                f"when the data is prepared"
            )
        place = next((i for i, left in enumerate(room) if left >= len(sample)), len(rows))
        if place == len(rows):
            rows.append([])
            room.append(row_tokens)
        rows[place].append(sample)
        room[place] -= len(sample)
    return _lay(rows, multiple_of, rows_multiple_of)


def split_by_anchors(
    samples: Sequence[Sample], max_anchors: int, anchors_per_sample: int
) -> Iterator[list[Sample]]:
    """Cut samples, in their order, into micro-batches within a budget of anchors.

    The drafter's cost goes with anchors, not tokens, so they are what a micro-batch is limited by.
    A sample counts with the anchors it will get: all valid ones, at most ``anchors_per_sample``.
    One without any joins for nothing.

    Args:
        samples: in the order to take them.
        max_anchors: the most anchors of a micro-batch.
        anchors_per_sample: the most anchors of a sample, ``max_anchors`` of
            :func:`~lengthwise.dflash.anchors.draw_anchors`.

    Raises:
        ConfigError: one sample could exceed the budget alone.
    """
    require_int("anchors_per_sample", anchors_per_sample, least=1)
    if require_int("max_anchors", max_anchors, least=1) < anchors_per_sample:
        raise ConfigError(
            f"a micro-batch may hold max_anchors={max_anchors:,} and one sample alone may get "
            f"anchors_per_sample={anchors_per_sample:,}; raise max_anchors to at least that, or "
            f"lower anchors_per_sample"
        )
    return _micro_batches(samples, max_anchors, anchors_per_sample)


def _micro_batches(
    samples: Sequence[Sample], max_anchors: int, anchors_per_sample: int
) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    used = 0
    for sample in samples:
        wanted = min(sample.num_valid_anchors, anchors_per_sample)
        if batch and used + wanted > max_anchors:
            yield batch
            batch, used = [], 0
        batch.append(sample)
        used += wanted
    if batch:
        yield batch


def _lay(rows: list[list[Sample]], multiple_of: int, rows_multiple_of: int) -> DraftBatch:
    """Write each row's samples one after the other; features stay on their device."""
    if not rows:
        raise DataError("a batch needs at least one sample, got none")
    require_int("multiple_of", multiple_of, least=1)
    require_int("rows_multiple_of", rows_multiple_of, least=1)
    first = rows[0][0]
    longest = max(sum(map(len, row)) for row in rows)
    shape = (round_up(len(rows), rows_multiple_of), round_up(longest, multiple_of))
    input_ids = torch.zeros(shape, dtype=torch.int64)
    loss_mask = torch.zeros(shape, dtype=torch.bool)
    features = first.features.new_zeros((*shape, first.features.shape[1]))
    document_ids = torch.full(shape, -1)
    position_ids = torch.zeros(shape, dtype=torch.int64)
    sample_ids: list[int] = []
    for r, row in enumerate(rows):
        start = 0
        for sample in row:
            _require_alike(sample, first)
            stop = start + len(sample)
            input_ids[r, start:stop] = sample.input_ids
            loss_mask[r, start:stop] = sample.loss_mask
            features[r, start:stop] = sample.features
            document_ids[r, start:stop] = len(sample_ids)
            position_ids[r, start:stop] = torch.arange(len(sample))
            sample_ids.append(sample.sample_id)
            start = stop
    ids = torch.tensor(sample_ids, dtype=torch.int64)
    return DraftBatch(input_ids, loss_mask, features, document_ids, position_ids, ids)


def _require_alike(sample: Sample, first: Sample) -> None:
    if (
        sample.features.shape[1] != first.features.shape[1]
        or sample.features.dtype != first.features.dtype
    ):
        raise DataError(
            f"samples of one batch need features of one size and type: sample {first.sample_id} "
            f"has {first.features.shape[1]:,} of {first.features.dtype}, sample "
            f"{sample.sample_id} has {sample.features.shape[1]:,} of {sample.features.dtype}"
        )


def round_up(size: int, multiple: int) -> int:
    """``size`` rounded up to a multiple."""
    return -(-size // multiple) * multiple
