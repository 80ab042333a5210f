"""CSV and TSV files with a header; one headed exactly ``length,count`` is a histogram."""

from __future__ import annotations

import csv
import io
import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lengthwise.errors import DataError
from lengthwise.lengths.columns import NUMBER, OTHER, TEXT, Field, check_column
from lengthwise.lengths.compressed import open_bytes
from lengthwise.lengths.histogram_file import CSV_HEADER, histogram_part
from lengthwise.lengths.rows import Part, Piece, Place
from lengthwise.lengths.storage import identity_of
from lengthwise.lengths.values import ValueLengths, usual_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.formats import ReadOptions

SAMPLE_ROWS = 100
ROWS_PER_PIECE = 1 << 16
_WHOLE = re.compile(r"[+-]?[0-9]+")
_LARGEST_CELL = 2**31 - 1
"""Python's csv module refuses cells over 128 KiB unless told; a sample's text may be longer."""


def fields(path: str) -> list[Field] | None:
    """The columns of the header; None for a histogram.

    A file whose first line holds nothing but numbers has no header: its columns are called
    ``column_1``, ``column_2`` and so on, or ``length`` if there is only one.
    """
    with _open_rows(path) as (header, rows, _):
        if header == CSV_HEADER:
            return None
        sample = [cells for _, cells in islice(rows, SAMPLE_ROWS)]
    return [
        _field(name, [cells[place] for cells in sample if place < len(cells)])
        for place, name in enumerate(header)
    ]


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:
    """The file as one part."""
    if field is None:
        return [histogram_part(path)]
    with _open_rows(path) as (header, _rows_of_file, _tell):
        here = [replace(field, name=name) for name in header]
    check_column(here, field.name, has_tokenizer=options.count_tokens is not None, where=path)

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(path, "line", stop_at_bad=options.stop_at_bad)
        seen = 0
        with _open_rows(path) as (header, rows, tell):
            column = header.index(field.name)
            while True:
                lengths = ValueLengths(field.kind, place, options.count_tokens)
                for line, cells in islice(rows, ROWS_PER_PIECE):
                    _add_cell(lengths, cells, line, (column, len(header)), field)
                if not len(lengths):
                    return
                yield lengths.piece()
                report(tell() - seen)
                seen = tell()

    return [Part(path, identity_of(path).size, "bytes", read)]


def _add_cell(
    lengths: ValueLengths, cells: list[str], line: int, shape: tuple[int, int], field: Field
) -> None:
    column, width = shape
    if not cells:
        lengths.add_bad(line, "blank line")
    elif len(cells) != width:
        lengths.add_bad(line, f"malformed: {len(cells)} cells under a header of {width}")
    elif field.kind == TEXT:
        lengths.add(cells[column], line)
    else:
        value = _number(cells[column])
        if isinstance(value, str):
            lengths.add_bad(line, f"not a number: {value[:40]!r}")
        else:
            lengths.add(value, line)


def _number(cell: str) -> int | float | str | None:
    """The number in a cell; None if it is empty, the cell itself if it is no number."""
    cell = cell.strip()
    if not cell or cell.casefold() in ("null", "none", "na", "n/a"):
        return None
    if _WHOLE.fullmatch(cell):
        return int(cell) if len(cell) < 25 else float(cell)
    try:
        return cell if "_" in cell else float(cell)  # Python reads 1_000 as a number
    except ValueError:
        return cell


def _field(name: str, cells: list[str]) -> Field:
    values = [_number(cell) for cell in cells]
    kind = usual_kind(values)
    if kind is None:
        return Field(name, OTHER if values else NUMBER, "empty cells" if values else "numbers")
    return Field(name, kind, "text" if kind == TEXT else "numbers")


@contextmanager
def _open_rows(
    path: str,
) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]], Callable[[], int]]]:
    """Yield the header, the rows with the line each starts on, and the stored bytes read so far."""
    csv.field_size_limit(_LARGEST_CELL)
    with open_bytes(path) as (file, tell), _as_text(file) as text:
        rows = _rows(path, text)
        first = next(rows, None)
        if first is None:
            raise DataError(f"{path} is empty: there is not even a header")
        header = first[1]
        if all(isinstance(_number(cell), (int, float)) for cell in header):
            names = [f"column_{place}" for place in range(1, len(header) + 1)]
            header, rows = (names if len(names) > 1 else ["length"]), chain([first], rows)
        yield [name.strip() for name in header], rows, tell


@contextmanager
def _as_text(file: IO[bytes]) -> Iterator[io.TextIOWrapper]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield text
    finally:
        text.detach()  # whoever opened the file closes it


def _rows(path: str, text: io.TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    delimiter = "\t" if ".tsv" in Path(path).suffixes else ","
    reader: Any = csv.reader(text, delimiter=delimiter)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}, near line {line:,}: {error}") from error
