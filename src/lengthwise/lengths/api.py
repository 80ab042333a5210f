"""``read_lengths`` and ``scan_lengths``: the lengths of anything."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import ConfigError, DataError, LengthwiseWarning
from lengthwise.lengths.formats import ReadOptions, expand, field_of, format_of, is_path
from lengthwise.lengths.gather import gather_parts, map_in_order
from lengthwise.lengths.rows import Part, Piece

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.core.limits import Int64Array
    from lengthwise.lengths.result import ScanResult

ON_BAD = ("error", "skip")
MOST_THREADS = 16
"""Threads used by default at most: beyond that a disk, or Python itself, is the limit."""
_NOT_READ = (
    "cannot read lengths from a {}; pass a path, a data set, a table, an array or a sequence"
)


@dataclass(frozen=True, slots=True)
class _Opened:
    parts: list[Part]
    column: str | None = None
    warnings: tuple[str, ...] = ()


def read_lengths(
    source: Any,
    *,
    column: str | None = None,
    on_bad: str = "error",
    tokenizer: Any = None,
    threads: int | None = None,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> Int64Array:
    """The length of every sample, in source order.

    With ``on_bad="skip"`` the array has only the rows that were kept; :func:`scan_lengths` also
    tells which those are. See it for the arguments.

    Returns:
        int64, shape (num_kept,).

    Warns:
        LengthwiseWarning: rows were left out, or all lengths are equal, sorted, and so on.
    """
    scan = scan_lengths(
        source,
        column=column,
        on_bad=on_bad,
        tokenizer=tokenizer,
        threads=threads,
        progress=progress,
    )
    if scan.num_bad:
        skipped = (
            f"{scan.num_bad:,} of {scan.num_rows_read:,} rows were left out; the first: "
            f"{scan.first_bad[0]}"
        )
        warnings.warn(skipped, LengthwiseWarning, stacklevel=2)
    for warning in scan.warnings:
        warnings.warn(warning, LengthwiseWarning, stacklevel=2)
    return scan.lengths


def scan_lengths(
    source: Any,
    *,
    column: str | None = None,
    on_bad: str = "error",
    tokenizer: Any = None,
    threads: int | None = None,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> ScanResult:
    """Read the lengths of a source, and what is worth knowing about them.

    Args:
        source: a path, glob or directory, or a list of them (Parquet, Arrow/Feather, JSONL, CSV,
            TSV, .npy, .npz, text, a directory of datasets' ``save_to_disk`` or of length shards),
            or their URLs (``s3://``, ``hf://``, ``https://`` ...); a datasets.Dataset or its
            column; a pyarrow table or array; a NumPy array; a sequence of lengths, of token
            lists, of texts or of records; a LengthHistogram. Several files count as one
            source, in the order given, globs and directories sorted by name.
        column: where the lengths are; by default a column of whole numbers under a usual name
            (``seq_len``, ``length``, ``num_tokens``, ...), else a list of tokens (``input_ids``).
        on_bad: "error" stops at a row without a usable length; "skip" leaves such rows out,
            counts them and describes the first ones.
        tokenizer: counts the tokens of text: a path of a ``tokenizers`` JSON file, a tokenizer
            object, or a callable from a text to its ids or their number.
        threads: files (or shares of one) read at the same time; by default one per CPU core.
        progress: called now and then with (done, total or None, "rows" or "bytes"), from any
            thread.

    Returns:
        The scan; its ``lengths`` are int64 of shape (num_kept,).

    Raises:
        BadLengthError: a row has no usable length; names file and row.
        ColumnError: no column of lengths, several of them, or text without a tokenizer.
        DataError: nothing to read, or a file that cannot be read.
        MissingDependencyError: the format needs a package that is not installed.
        ConfigError: an argument is not one of its choices.
    """
    options, threads = read_options(on_bad, tokenizer), default_threads(threads)
    opened = _open(source, column, options, threads)
    scan = gather_parts(opened.parts, opened.column, threads, progress)
    return replace(scan, warnings=(*opened.warnings, *scan.warnings))


def read_options(on_bad: str, tokenizer: Any) -> ReadOptions:
    """What every reader needs to know, checked.

    Raises:
        ConfigError: an argument is not one of its choices.
        DataError: the tokenizer's file cannot be read.
    """
    if on_bad not in ON_BAD:
        raise ConfigError(f"on_bad must be 'error' or 'skip', got {on_bad!r}")
    count_tokens = None
    if tokenizer is not None:
        from lengthwise.lengths.tokens import token_counter

        count_tokens = token_counter(tokenizer)
    return ReadOptions(stop_at_bad=on_bad == "error", count_tokens=count_tokens)


def default_threads(threads: int | None) -> int:
    """Threads that read, checked: one per CPU core unless given.

    Raises:
        ConfigError: a number below 1.
    """
    if threads is not None and threads < 1:
        raise ConfigError(f"threads must be at least 1, got {threads}")
    return threads or min(os.cpu_count() or 1, MOST_THREADS)


def _open(source: Any, column: str | None, options: ReadOptions, threads: int) -> _Opened:
    """Find the reader of a source."""
    if isinstance(source, LengthHistogram):
        return _Opened([_histogram(source)])
    if isinstance(source, (str, os.PathLike)):
        return _open_files([os.fspath(source)], column, options, threads)
    if isinstance(source, (list, tuple)) and source and all(map(is_path, source[:100])):
        return _open_files([os.fspath(item) for item in source], column, options, threads)
    home = type(source).__module__.split(".")[0]
    if home == "datasets":
        from lengthwise.lengths import hf

        return _opened(hf.open_memory(source, column, options))
    is_frame = hasattr(source, "__arrow_c_stream__") and hasattr(source, "columns")
    if home == "pyarrow" or is_frame:
        from lengthwise.lengths import arrow

        table = source if home == "pyarrow" else arrow.require_pyarrow().table(source)
        return _opened(arrow.open_memory(table, column, options))
    return _open_rows(source, column, options)


def _open_files(
    sources: Sequence[str], column: str | None, options: ReadOptions, threads: int
) -> _Opened:
    files = expand(sources)
    field = field_of(files, column, options)
    found = map_in_order(lambda path: format_of(path).parts(path, field, options), files, threads)
    return _Opened(
        [part for parts in found for part in parts], None if field is None else field.name
    )


def _open_rows(source: Any, column: str | None, options: ReadOptions) -> _Opened:
    from lengthwise.lengths import npy, sequence

    if hasattr(source, "__array__") and not isinstance(source, Sequence):
        import numpy as np

        array = np.asarray(source)
        if array.dtype.kind in "iuf":
            return _Opened([npy.array_part(array, None, options)])
        source = array.tolist()
    if isinstance(source, (bytes, bytearray)) or hasattr(source, "keys"):
        raise DataError(_NOT_READ.format(type(source).__name__))
    if isinstance(source, (Sequence, Iterator)):
        return _opened(sequence.open_sequence(source, column, options))
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        rows = (source[index] for index in range(len(source)))
        part, name = sequence.open_sequence(rows, column, options)
        note = (
            f"lengths were read by fetching each of the {len(source):,} rows from the "
            f"{type(source).__name__}; save them once with numpy.save and pass the file"
        )
        return _Opened([replace(part, size=len(source))], name, (note,))
    if isinstance(source, Iterable):
        return _opened(sequence.open_sequence(iter(source), column, options))
    raise DataError(_NOT_READ.format(type(source).__name__))


def _opened(found: tuple[Part, str | None]) -> _Opened:
    return _Opened([found[0]], found[1])


def _histogram(histogram: LengthHistogram) -> Part:
    from lengthwise.lengths.histogram_file import expand as expand_histogram

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        yield Piece(expand_histogram(histogram, "the histogram"))
        report(histogram.num_samples)

    return Part(None, histogram.num_samples, "rows", read, is_histogram=True)
