"""Parquet files: one column, row group by row group, and not a byte of any other column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError
from lengthwise.lengths.arrow import array_pieces, require_pyarrow, schema_fields
from lengthwise.lengths.columns import TEXT, check_column
from lengthwise.lengths.rows import Part, Piece, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.formats import ReadOptions

BATCH_BYTES = 32 << 20
"""Decoded bytes held at once by each thread, about; lists of one row group may take far more."""
LARGEST_BATCH_ROWS = 1 << 18
TEXT_BATCH_ROWS = 1 << 13
PART_ROWS = 1 << 17
"""Row groups are read by one thread until they hold this many rows."""
PART_BYTES = 64 << 20
"""The same limit in decoded bytes of the column."""

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
    here = schema_fields(metadata.schema.to_arrow_schema())
    tokenized = options.count_tokens is not None
    field = check_column(here, field.name, has_tokenizer=tokenized, where=path)
    leaves = _leaves(metadata, field.name)
    found, first_row = [], 0
    for groups in _runs(metadata, leaves):
        rows = sum(metadata.row_group(group).num_rows for group in groups)
        size = sum(_column_bytes(metadata, group, leaves) for group in groups)
        batch_rows = _batch_rows(rows, size, text=field.kind == TEXT)
        read = _reader(path, metadata, field.name, groups, batch_rows, first_row, options)
        found.append(Part(path, rows, "rows", read))
        first_row += rows
    return found


def open_file(path: str) -> Any:
    """The file as pyarrow reads it; nothing is read ahead."""
    return require_pyarrow().OSFile(path, "rb")


def _reader(
    path: str,
    metadata: Any,
    column: str,
    groups: list[int],
    batch_rows: int,
    first_row: int,
    options: ReadOptions,
) -> Callable[[Callable[[int], None]], Iterator[Piece]]:
    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        place = Place(path, stop_at_bad=options.stop_at_bad)
        row = first_row
        with open_file(path) as file:
            # pre_buffer would fetch neighbouring columns to save requests
            parquet = ParquetFile(file, metadata=metadata, pre_buffer=False)
            try:
                for batch in parquet.iter_batches(
                    batch_size=batch_rows, row_groups=groups, columns=[column], use_threads=False
                ):
                    for piece in array_pieces(batch.column(0), place, row, options):
                        yield piece
                        row += len(piece.lengths)
                        report(len(piece.lengths))
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path}, after row {row:,}: {error}") from error

    return read


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
    return sum(row_group.column(leaf).total_uncompressed_size for leaf in leaves)


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


def _batch_rows(rows: int, size: int, *, text: bool) -> int:
    """Rows to decode at once so that a batch takes about ``BATCH_BYTES``."""
    fitting = max(1, BATCH_BYTES * rows // max(size, 1))
    return min(fitting, TEXT_BATCH_ROWS if text else LARGEST_BATCH_ROWS)
