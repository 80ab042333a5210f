"""Parquet files: one column, row group by row group, and not a byte of any other column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError
from lengthwise.lengths.arrow import array_pieces, require_pyarrow, schema_fields
from lengthwise.lengths.columns import LIST, NUMBER, TEXT, check_column
from lengthwise.lengths.parquet_pages import NULL_LIST, chunk_lengths, list_levels
from lengthwise.lengths.rows import Part, Piece, Place, check_numbers
from lengthwise.lengths.storage import open_random

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.formats import ReadOptions
    from lengthwise.lengths.parquet_pages import ListLevels

BATCH_BYTES = 32 << 20
"""Decoded bytes held at once by each thread, about; lists of one row group may take far more."""
LARGEST_BATCH_ROWS = 1 << 20
TEXT_BATCH_ROWS = 1 << 13
PART_ROWS = 1 << 20
"""Row groups are read by one thread until they hold this many rows."""
PART_BYTES = 16 << 20
"""The same limit in decoded bytes of the column."""
LEVELS_FROM_BYTES = 128 << 20
"""A list column from this size on (decoded) is counted by its levels; below it, pyarrow decodes it
sooner than the kernels are loaded."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8


def fields(path: str) -> list[Field]:
    """The columns of a file, from its footer."""
    return schema_fields(_metadata(path).schema.to_arrow_schema())


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:
    """Runs of row groups, each small enough that several threads share a file.

    Raises:
        ColumnError: this file has no such column, or one without lengths.
    """
    assert field is not None
    metadata = _metadata(path)
    schema = metadata.schema.to_arrow_schema()
    tokenized = options.count_tokens is not None
    field = check_column(schema_fields(schema), field.name, has_tokenizer=tokenized, where=path)
    leaves = _leaves(metadata, field.name)
    levels = None
    if field.kind == LIST and _total_bytes(metadata, leaves) >= LEVELS_FROM_BYTES:
        levels = list_levels(schema.field(field.name), metadata.schema, leaves)
    column = _Column(path, metadata, field, leaves, levels)
    found, first_row = [], 0
    for groups in _runs(metadata, leaves):
        rows = sum(metadata.row_group(group).num_rows for group in groups)
        read = partial(_read, column, groups, first_row, options)
        found.append(Part(path, rows, "rows", read))
        first_row += rows
    return found


def open_file(path: str) -> Any:
    """The file as pyarrow reads it; nothing is read ahead."""
    require_pyarrow()
    return open_random(path)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file.

    Attributes:
        path: of the file.
        metadata: its footer.
        field: the column.
        leaves: places of the stored columns it is made of.
        levels: how to count its lists without decoding them; None leaves it to pyarrow.
    """

    path: str
    metadata: Any
    field: Field
    leaves: list[int]
    levels: ListLevels | None


def _read(
    column: _Column,
    groups: list[int],
    first_row: int,
    options: ReadOptions,
    report: Callable[[int], None],
) -> Iterator[Piece]:
    place = Place(column.path, stop_at_bad=options.stop_at_bad)
    row = first_row
    with open_file(column.path) as file:
        for run in [groups] if column.levels is None else [[group] for group in groups]:
            for piece in _run_pieces(file, column, run, row, (place, options)):
                yield piece
                row += len(piece.lengths)
                report(len(piece.lengths))


def _run_pieces(
    file: Any, column: _Column, groups: list[int], row: int, how: tuple[Place, ReadOptions]
) -> Iterator[Piece]:
    place, options = how
    if column.levels is not None:
        group = column.metadata.row_group(groups[0])
        lengths = chunk_lengths(file, group, column.leaves[0], column.levels)
        if lengths is not None:
            null = lengths == NULL_LIST
            yield check_numbers(lengths, place, row, ~null if bool(null.any()) else None)
            return
    import pyarrow as pa

    try:
        for array in _decoded(file, column, groups):
            for piece in array_pieces(array, place, row, options):
                yield piece
                row += len(piece.lengths)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{column.path}, after row {row:,}: {error}") from error


def _decoded(file: Any, column: _Column, groups: list[int]) -> Iterator[Any]:
    """The column of some row groups, in pieces of bounded size."""
    from pyarrow.parquet import ParquetFile

    # pre_buffer would fetch neighbouring columns to save requests
    parquet = ParquetFile(file, metadata=column.metadata, pre_buffer=False)
    names = [column.field.name]
    rows: int = sum(column.metadata.row_group(group).num_rows for group in groups)
    if column.field.kind == NUMBER and rows <= LARGEST_BATCH_ROWS:
        yield parquet.read_row_groups(groups, columns=names, use_threads=False).column(0)
        return
    size = sum(_column_bytes(column.metadata, group, column.leaves) for group in groups)
    fitting = max(1, BATCH_BYTES * rows // max(size, 1))
    most = TEXT_BATCH_ROWS if column.field.kind == TEXT else LARGEST_BATCH_ROWS
    for batch in parquet.iter_batches(
        batch_size=min(fitting, most), row_groups=groups, columns=names, use_threads=False
    ):
        yield batch.column(0)


def _metadata(path: str) -> Any:
    """The footer, read alone: pyarrow would fetch 64 KiB before it as well."""
    pa = require_pyarrow()
    from pyarrow.parquet import read_metadata

    with open_file(path) as file:
        size = file.size()
        if size < len(_MAGIC) + _TAIL_BYTES:
            raise DataError(f"{path} is no Parquet file: it has {size:,} bytes")
        tail = file.read_at(_TAIL_BYTES, size - _TAIL_BYTES)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > size - len(_MAGIC) - _TAIL_BYTES:
            raise DataError(
                f"{path} is no Parquet file, or is cut off: its last bytes are {tail!r}"
            )
        footer = file.read_at(length, size - _TAIL_BYTES - length)
    try:
        return read_metadata(pa.BufferReader(_MAGIC + footer + tail))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is no readable Parquet file: {error}") from error


def _leaves(metadata: Any, column: str) -> list[int]:
    """Places of the stored columns that make up one column of the table."""
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    return [
        index for index, path in enumerate(paths) if path == column or path.startswith(f"{column}.")
    ]


def _column_bytes(metadata: Any, group: int, leaves: list[int]) -> int:
    row_group = metadata.row_group(group)
    return sum(int(row_group.column(leaf).total_uncompressed_size) for leaf in leaves)


def _total_bytes(metadata: Any, leaves: list[int]) -> int:
    return sum(_column_bytes(metadata, group, leaves) for group in range(metadata.num_row_groups))


def _runs(metadata: Any, leaves: list[int]) -> Iterator[list[int]]:
    run: list[int] = []
    rows = size = 0
    for group in range(metadata.num_row_groups):
        run.append(group)
        rows += metadata.row_group(group).num_rows
        size += _column_bytes(metadata, group, leaves)
        if rows >= PART_ROWS or size >= PART_BYTES:
            yield run
            run, rows, size = [], 0, 0
    if run:
        yield run
