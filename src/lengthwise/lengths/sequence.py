"""Python objects in memory: sequences of lengths, of token lists, of texts, of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import ColumnError, DataError
from lengthwise.lengths.columns import NUMBER, OTHER, TEXT, choose_column
from lengthwise.lengths.rows import Part, Piece, Place, check_numbers
from lengthwise.lengths.values import ValueLengths, describe, fields_of, kind_of, usual_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lengthwise.lengths.formats import ReadOptions

SAMPLE_RECORDS = 100
ROWS_PER_PIECE = 1 << 16


def open_sequence(
    rows: Iterable[Any], wanted: str | None, options: ReadOptions
) -> tuple[Part, str | None]:
    """Rows in memory as one part, and the column used.

    Args:
        rows: whole numbers; or lists (arrays, tensors) of tokens; or texts, with a tokenizer; or
            records (mappings) with such values under ``wanted``.
        wanted: key of the records.
        options: as everywhere.

    Raises:
        ColumnError: records without a key for lengths, or text without a tokenizer.
        DataError: rows of another kind.
    """
    iterator = iter(rows)
    sample = list(islice(iterator, SAMPLE_RECORDS))
    size = len(rows) if isinstance(rows, Sequence) else None
    if isinstance(next((row for row in sample if row is not None), None), Mapping):
        records = [row for row in sample if isinstance(row, Mapping)]
        tokenized = options.count_tokens is not None
        field = choose_column(fields_of(records), wanted, has_tokenizer=tokenized, where="the rows")
        values = _column(chain(sample, iterator), field.name)
        return _part(values, field.kind, size, options), field.name
    if wanted is not None:
        raise ColumnError(
            f"column {wanted!r} was asked for, but the rows are no records: the first is "
            f"{describe(sample[0]) if sample else 'missing'}"
        )
    if isinstance(rows, (list, tuple)) and (part := _plain(rows, options)):
        return part, None
    return _part(chain(sample, iterator), _kind(sample, options), size, options), None


def _plain(rows: list[Any] | tuple[Any, ...], options: ReadOptions) -> Part | None:
    """Rows that are all int, or all lists, as one array without a loop in Python."""
    types = set(map(type, rows))
    if types == {int}:
        try:
            values = np.fromiter(rows, np.int64, len(rows))
        except OverflowError:
            return None
    elif types and types <= {list, tuple} and not isinstance(_first_item(rows), dict):
        values = np.fromiter(map(len, rows), np.int64, len(rows))
    else:
        return None

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        yield check_numbers(values, Place(stop_at_bad=options.stop_at_bad), 0, None)
        report(len(values))

    return Part(None, len(values), "rows", read)


def _first_item(rows: Sequence[Any]) -> Any:
    return next((row[0] for row in rows if len(row)), None)


def _kind(sample: list[Any], options: ReadOptions) -> str:
    kind = usual_kind(sample) or NUMBER
    if kind == TEXT and options.count_tokens is None:
        raise ColumnError(
            "the rows are text, and characters are not tokens; pass a tokenizer (tokenizer=...)"
        )
    if kind == OTHER:
        first = next(row for row in sample if kind_of(row) == OTHER)
        raise DataError(
            f"rows must be lengths, lists of tokens, texts or records; the first is "
            f"{describe(first)}"
        )
    return kind


def _part(values: Iterator[Any], kind: str, size: int | None, options: ReadOptions) -> Part:
    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(stop_at_bad=options.stop_at_bad)
        row = 0
        while True:
            lengths = ValueLengths(kind, place, options.count_tokens)
            for value in islice(values, ROWS_PER_PIECE):
                if isinstance(value, _Missing):
                    lengths.add_bad(row, value.reason)
                else:
                    lengths.add(value, row)
                row += 1
            if not len(lengths):
                return
            yield lengths.piece()
            report(len(lengths))

    return Part(None, size, "rows", read)


class _Missing:
    """Stands for the value of a record that has none."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _column(records: Iterable[Any], name: str) -> Iterator[Any]:
    for record in records:
        if not isinstance(record, Mapping):
            yield _Missing(f"not a record but {describe(record)}")
        elif name not in record:
            yield _Missing(f"missing key {name!r}")
        else:
            yield record[name]
