"""What a scan found: lengths, where they came from, and which rows were bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import Int64Array


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row without a usable length.

    Attributes:
        file: path of its file, or None for an object in memory.
        row: where it stands: a line counted from 1 in text files, else a row counted from 0.
        reason: what is wrong, in words.
        unit: "row" or "line".
    """

    file: str | None
    row: int
    reason: str
    unit: str = "row"

    def __str__(self) -> str:
        """``data/a.parquet, row 17: null``."""
        place = f"{self.unit} {self.row:,}"
        return f"{place if self.file is None else f'{self.file}, {place}'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read.

    Attributes:
        path: as given or found.
        num_rows: rows in it, bad ones included.
    """

    path: str
    num_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class ScanResult:
    """Lengths of a source, and everything worth knowing about how they were read.

    Attributes:
        lengths: tokens of each kept sample in source order; int64, shape (num_kept,).
        histogram: the same lengths, counted.
        num_rows_read: rows of the source, bad ones included.
        num_bad: rows left out (``on_bad="skip"``); 0 otherwise.
        first_bad: the first of them in source order.
        files: the files read, in order; empty for an object in memory.
        column: the column used; None where there is none to choose.
        warnings: what looks wrong though every row is valid, one sentence each.
        row_index: for each kept sample its row in the concatenated source, counted from 0; int64,
            shape (num_kept,); None if no row was left out (it would be 0, 1, 2, ...).
        is_histogram: the source was a histogram: the order of the lengths says nothing.
    """

    lengths: Int64Array
    histogram: LengthHistogram
    num_rows_read: int
    num_bad: int
    first_bad: tuple[BadRow, ...]
    files: tuple[SourceFile, ...]
    column: str | None
    warnings: tuple[str, ...]
    row_index: Int64Array | None = None
    is_histogram: bool = False

    def __post_init__(self) -> None:
        """Check that every row is accounted for."""
        assert self.lengths.dtype == np.int64
        assert self.num_rows_read == self.num_kept + self.num_bad, "a row vanished"
        assert self.histogram.num_samples == self.num_kept
        assert (self.row_index is None) == (self.num_bad == 0)
        assert len(self.first_bad) <= self.num_bad
        assert self.row_index is None or self.row_index.shape == self.lengths.shape

    @property
    def num_kept(self) -> int:
        """Samples with a usable length."""
        return int(self.lengths.size)

    @property
    def ordered(self) -> Ordered | None:
        """The lengths in source order; None where their order says nothing."""
        return None if self.is_histogram else self.lengths

    def source_rows(self, samples: Int64Array) -> Int64Array:
        """The rows of some samples in the concatenated source, counted from 0."""
        return samples if self.row_index is None else self.row_index[samples]


class Ordered(Protocol):
    """Lengths of which a range can be had: an array, or shards on disk."""

    @property
    def size(self) -> int:
        """How many."""

    def __getitem__(self, rows: slice, /) -> Int64Array:
        """A plain range of them."""


@runtime_checkable
class Scanned(Protocol):
    """What every scan can tell, wherever its lengths are."""

    @property
    def histogram(self) -> LengthHistogram:
        """The lengths, counted."""

    @property
    def ordered(self) -> Ordered | None:
        """The lengths in source order; None where their order says nothing."""

    def source_rows(self, samples: Int64Array) -> Int64Array:
        """The rows of some samples in the concatenated source, counted from 0."""
