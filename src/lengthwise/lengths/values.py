"""Lengths of single Python values: of JSON records, CSV cells, list items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.lengths.columns import LIST, NUMBER, OTHER, TEXT, Field
from lengthwise.lengths.rows import NULL, Piece, Place, RowLengths, number_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lengthwise.lengths.tokens import CountTokens

TEXTS_PER_CALL = 1024
"""Texts that go to the tokenizer at once."""
CHARACTERS_PER_CALL = 4_000_000
"""Characters after which a smaller number of texts goes to the tokenizer."""

_NUMBERS = (int, float, np.integer, np.floating)


def kind_of(value: Any) -> str | None:
    """NUMBER, LIST, TEXT or OTHER; None for null, which fits every kind."""
    if value is None:
        return None
    if isinstance(value, str):
        return TEXT
    if isinstance(value, (bool, np.bool_)):
        return OTHER
    if isinstance(value, _NUMBERS):
        return NUMBER
    if isinstance(value, (list, tuple)):
        return OTHER if value and isinstance(value[0], dict) else LIST
    unordered = (Mapping, bytes, bytearray, set, frozenset)
    return LIST if hasattr(value, "__len__") and not isinstance(value, unordered) else OTHER


def describe(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, (list, tuple)):
        inside = "records" if value and isinstance(value[0], dict) else "items"
        return f"a list of {len(value):,} {inside}"
    names = {TEXT: "text", NUMBER: "a number", LIST: "a list", None: "null"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(kind_of(value), f"a {type(value).__name__}")


def usual_kind(values: Iterable[Any]) -> str | None:
    """The kind most of the values have; of equally many, the one seen first; None for none.

    The first rows may be the bad ones, so the first value alone does not decide.
    """
    kinds = Counter(kind for value in values if (kind := kind_of(value)) is not None)
    return kinds.most_common(1)[0][0] if kinds else None


def fields_of(records: Iterable[Mapping[str, Any]]) -> list[Field]:
    """The columns of some records; a column's kind is the usual one of its values."""
    columns: dict[str, list[Any]] = {}
    for record in records:
        for name, value in record.items():
            columns.setdefault(name, []).append(value)
    return [_field_of(name, values) for name, values in columns.items()]


def _field_of(name: str, values: list[Any]) -> Field:
    kind = usual_kind(values)
    if kind is None:
        return Field(name, OTHER, "only null")
    return Field(name, kind, describe(next(value for value in values if kind_of(value) == kind)))


class ValueLengths:
    """Collects the lengths of values of one kind, row by row; text goes to the tokenizer in bulk.

    A value of another kind than the column's is a bad row: a record that holds text where all
    others hold a number is not counted some other way.
    """

    def __init__(self, kind: str, place: Place, count_tokens: CountTokens | None) -> None:
        """Start empty; ``kind`` is that of the column."""
        self._kind = kind
        self._rows = RowLengths(place)
        self._count_tokens = count_tokens
        self._texts: list[tuple[int, str | None, str]] = []
        self._characters = 0

    def __len__(self) -> int:
        """Rows added so far."""
        return len(self._rows) + len(self._texts)

    def add(self, value: Any, row: int) -> None:
        """Add one value."""
        if self._kind == NUMBER and type(value) is int:
            self._rows.add(value, row)
            return
        kind = kind_of(value)
        if kind != self._kind:
            self.add_bad(row, NULL if kind is None else self._mixed(value))
        elif kind == TEXT:
            self._texts.append((row, value, ""))
            self._characters += len(value)
            if len(self._texts) >= TEXTS_PER_CALL or self._characters >= CHARACTERS_PER_CALL:
                self._count_texts()
        elif kind == LIST:
            self._rows.add(len(value), row)
        else:
            self._add_number(value, row)

    def add_bad(self, row: int, reason: str) -> None:
        """Add a row without a usable value."""
        if self._texts:
            self._texts.append((row, None, reason))
        else:
            self._rows.add_bad(row, reason)

    def piece(self) -> Piece:
        """Everything added so far."""
        self._count_texts()
        return self._rows.piece()

    def _add_number(self, value: Any, row: int) -> None:
        if np.isfinite(value) and value == int(value):
            self._rows.add(int(value), row)
        else:
            self._rows.add_bad(row, number_fault(value))

    def _mixed(self, value: Any) -> str:
        expected = {NUMBER: "numbers", LIST: "lists", TEXT: "text"}[self._kind]
        return f"mixed types: {describe(value)} in a column of {expected}"

    def _count_texts(self) -> None:
        pending, self._texts, self._characters = self._texts, [], 0
        texts = [text for _, text, _ in pending if text is not None]
        if not pending:
            return
        assert self._count_tokens is not None, "text columns are only chosen with a tokenizer"
        counts = iter(self._count_tokens(texts))
        for row, text, reason in pending:
            if text is None:
                self._rows.add_bad(row, reason)
            else:
                self._rows.add(next(counts), row)
