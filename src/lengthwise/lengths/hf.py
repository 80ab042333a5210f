"""Hugging Face data sets: saved directories, and Dataset and Column objects in memory.

Lengths come from the rows the loader will index: after ``shuffle``, ``select`` or ``filter`` a
Dataset keeps its old table and a list of row numbers, and both are followed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ColumnError, DataError
from lengthwise.lengths import arrow
from lengthwise.lengths.columns import TEXT, choose_column
from lengthwise.lengths.rows import Part, Piece, Place
from lengthwise.lengths.values import TEXTS_PER_CALL, ValueLengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.formats import ReadOptions


def fields(path: str) -> list[Field]:
    """The columns of a directory that ``save_to_disk`` wrote."""
    files = _data_files(path)
    return arrow.fields(files[0]) if files else []


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:
    """One part for each Arrow file of the directory."""
    return [part for file in _data_files(path) for part in arrow.parts(file, field, options)]


def _data_files(path: str) -> list[str]:
    directory = Path(path)
    if (directory / "dataset_dict.json").is_file():
        splits = json.loads((directory / "dataset_dict.json").read_text("utf-8"))["splits"]
        raise DataError(
            f"{path} holds several splits; name one: "
            f"{', '.join(str(directory / split) for split in splits)}"
        )
    state = json.loads((directory / "state.json").read_text("utf-8"))
    if state.get("_indices_data_files"):
        raise DataError(
            f"{path} was saved by an old version of datasets with a list of row numbers; load it "
            f"with datasets.load_from_disk and save it again"
        )
    return [str(directory / entry["filename"]) for entry in state["_data_files"]]


def open_memory(source: Any, wanted: str | None, options: ReadOptions) -> tuple[Part, str | None]:
    """A Dataset, or a lazy column of one (``ds["length"]``), as one part, and the column used.

    Raises:
        ColumnError: no column of lengths, or several, or rows that are made on access.
        DataError: a DatasetDict, or a streaming data set.
    """
    if hasattr(source, "column_name") and hasattr(source, "source"):
        return _open_column(source, wanted, options)
    if isinstance(source, dict):
        raise DataError(f"this is a DatasetDict; pass one split of it: {', '.join(source)}")
    if not hasattr(source, "data"):
        raise DataError(
            f"a {type(source).__name__} has no row numbers, which a plan of batches needs; "
            f"pass a map-style datasets.Dataset"
        )
    return _open_dataset(source, wanted, options)


def _open_column(source: Any, wanted: str | None, options: ReadOptions) -> tuple[Part, str | None]:
    """A lazy column: from its table in bulk, never element by element."""
    if not hasattr(source.source, "data"):
        raise DataError(
            f"the column {source.column_name!r} is nested or streaming; pass the data set with "
            f"column=... instead"
        )
    if wanted not in (None, source.column_name):
        raise ColumnError(f"column {wanted!r} was asked for, but {source.column_name!r} was passed")
    return _open_dataset(source.source, source.column_name, options)


def _open_dataset(source: Any, wanted: str | None, options: ReadOptions) -> tuple[Part, str | None]:
    shown = arrow.schema_fields(source.data.schema)
    if source.format["type"] == "custom":
        names = ", ".join(field.name for field in shown)
        raise ColumnError(
            f"this data set makes its rows on access (set_transform or with_transform), so the "
            f"stored columns ({names}) may not be what the loader sees; add the lengths with "
            f"ds.map before setting the transform and pass ds.with_format(None)"
        )
    tokenized = options.count_tokens is not None
    field = choose_column(shown, wanted, has_tokenizer=tokenized, where="the data set")

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(stop_at_bad=options.stop_at_bad)
        pieces = _text_pieces if field.kind == TEXT else _number_pieces
        for piece in pieces(source, field.name, place, options):
            yield piece
            report(len(piece.lengths))

    return Part(None, len(source), "rows", read), field.name


def _number_pieces(source: Any, column: str, place: Place, options: ReadOptions) -> Iterator[Piece]:
    """Numbers or list lengths of the whole table first, then the rows that are selected."""
    import pyarrow as pa

    numbers = arrow.structure(source.data.column(column))
    indices = vars(source)["_indices"]
    if indices is not None:
        if isinstance(numbers, pa.ChunkedArray):
            numbers = numbers.combine_chunks()
        numbers = numbers.take(indices.column(0))
    if len(numbers) != len(source):
        raise DataError(f"the table has {len(numbers):,} rows, the data set {len(source):,}")
    yield from arrow.array_pieces(numbers, place, 0, options)


def _text_pieces(source: Any, column: str, place: Place, options: ReadOptions) -> Iterator[Piece]:
    texts = source.select_columns([column]).with_format(None)
    for first in range(0, len(texts), TEXTS_PER_CALL):
        lengths = ValueLengths(TEXT, place, options.count_tokens)
        batch = texts[first : first + TEXTS_PER_CALL][column]
        for row, text in enumerate(batch, first):
            lengths.add(text, row)
        yield lengths.piece()
