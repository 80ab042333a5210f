"""Run the parts of a source on threads and put their lengths together in order."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import BadLengthError, DataError
from lengthwise.lengths.checks import warnings_for
from lengthwise.lengths.result import BadRow, ScanResult, SourceFile
from lengthwise.lengths.rows import NUM_LISTED, Part, Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from lengthwise.core.limits import Int64Array

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_QUEUED_PER_THREAD = 4


def map_in_order(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    threads: int,
    stop: threading.Event | None = None,
) -> Iterator[_Result]:
    """``function`` of each item, on threads, results in order.

    The first error in that order ends it: what is queued is cancelled, and ``stop`` is set for
    what is still running.
    """
    if threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[_Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) >= threads * _QUEUED_PER_THREAD:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            if stop is not None:
                stop.set()
            for future in running:
                future.cancel()


def gather_parts(
    parts: Sequence[Part],
    column: str | None,
    threads: int,
    progress: Callable[[int, int | None, str], None] | None,
) -> ScanResult:
    """Read all parts.

    Raises:
        BadLengthError: the first bad row in source order, or a source with nothing but bad rows.
    """
    pieces, lengths = _read_parts(parts, threads, _Counter(parts, progress))
    files: dict[str, int] = {}
    for part, piece in zip(parts, pieces, strict=True):
        if part.file is not None:
            files[part.file] = files.get(part.file, 0) + len(piece.lengths)
    bad = [row for piece in pieces for row in piece.bad]
    is_histogram = bool(parts) and all(part.is_histogram for part in parts)
    return scan_result(lengths, bad, files, column, is_histogram=is_histogram)


def scan_result(
    lengths: Int64Array,
    bad: Sequence[BadRow],
    files: Mapping[str, int],
    column: str | None,
    *,
    is_histogram: bool,
) -> ScanResult:
    """What all rows of a source come to.

    Args:
        lengths: of every row, 0 where it is bad; int64, shape (num_rows,).
        bad: the first bad rows, in source order.
        files: path -> rows, in source order.
        column: the column used.
        is_histogram: the order says nothing.

    Raises:
        BadLengthError: there are rows, and all are bad.
    """
    row_index, num_rows = None, int(lengths.size)
    if bad:
        kept = lengths > 0
        row_index, lengths = np.flatnonzero(kept), lengths[kept]
        require_some(lengths.size, num_rows, bad)
    scan = ScanResult(
        lengths=lengths,
        histogram=LengthHistogram.from_lengths(lengths),
        num_rows_read=num_rows,
        num_bad=num_rows - int(lengths.size),
        first_bad=tuple(bad[:NUM_LISTED]),
        files=tuple(SourceFile(path, rows) for path, rows in files.items()),
        column=column,
        warnings=(),
        row_index=row_index,
        is_histogram=is_histogram,
    )
    return replace(scan, warnings=tuple(warnings_for(scan)))


class _Counter:
    """Adds up what the parts have done, for the progress callback."""

    def __init__(
        self, parts: Sequence[Part], progress: Callable[[int, int | None, str], None] | None
    ) -> None:
        sizes = [part.size for part in parts]
        self._unit = parts[0].unit if parts else "rows"
        one_unit = all(part.unit == self._unit for part in parts)
        known = one_unit and None not in sizes
        self._total = sum(size for size in sizes if size is not None) if known else None
        self._done = 0
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, units: int) -> None:
        """Count more units."""
        if self._progress is not None:
            with self._lock:
                self._done += units
            self._progress(self._done, self._total, self._unit)


def _read_parts(
    parts: Sequence[Part], threads: int, counter: _Counter
) -> tuple[list[Piece], Int64Array]:
    """The pieces of all parts, and all lengths in one array.

    Where every part knows its rows, each writes straight into its share of the array.
    """
    stop = threading.Event()
    sizes = [part.size if part.unit == "rows" else None for part in parts]
    if None in sizes:
        pieces = list(map_in_order(lambda p: _read_part(p, counter, stop), parts, threads, stop))
        return pieces, _joined([piece.lengths for piece in pieces])
    ends = np.cumsum([0, *(size or 0 for size in sizes)])
    lengths = np.empty(int(ends[-1]), np.int64)
    shares = [lengths[first:last] for first, last in pairwise(ends.tolist())]
    jobs = list(zip(parts, shares, strict=True))
    pieces = list(map_in_order(lambda job: _fill(*job, counter, stop), jobs, threads, stop))
    return pieces, lengths


def _read_part(part: Part, counter: _Counter, stop: threading.Event) -> Piece:
    pieces = list(takewhile(lambda _: not stop.is_set(), part.read(counter.add)))
    bad = [row for piece in pieces for row in piece.bad]
    return Piece(_joined([piece.lengths for piece in pieces]), tuple(bad[:NUM_LISTED]))


def _fill(part: Part, share: Int64Array, counter: _Counter, stop: threading.Event) -> Piece:
    bad: list[BadRow] = []
    row = 0
    for piece in takewhile(lambda _: not stop.is_set(), part.read(counter.add)):
        size = len(piece.lengths)
        if row + size <= len(share):
            share[row : row + size] = piece.lengths
        row += size
        bad += piece.bad[: NUM_LISTED - len(bad)]
    if row != len(share) and not stop.is_set():
        where = "the source" if part.file is None else part.file
        raise DataError(f"{where}: {len(share):,} rows were announced, but {row:,} came")
    return Piece(share, tuple(bad))


def _joined(arrays: list[Int64Array]) -> Int64Array:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def require_some(num_kept: int, num_rows: int, bad: Sequence[BadRow]) -> None:
    """Refuse a source of bad rows only.

    Raises:
        BadLengthError: no row was kept.
    """
    if num_kept == 0:
        raise BadLengthError(
            f"none of the {num_rows:,} rows has a usable length; the first: {bad[0]}. Is this the "
            f"right column, and was it ever filled in?"
        )
