"""Rows in, lengths out: what counts as a length, and what happens to a row without one.

Every reader yields pieces: the lengths of consecutive rows, 0 where a row has none.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import BadLengthError
from lengthwise.lengths.result import BadRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

NUM_LISTED = 10
"""Bad rows a scan describes; the others are only counted."""
LARGEST_LENGTH = 2**53
"""Largest length accepted: beyond it a float column could not hold every whole number."""

NULL = "null: there is no length"
ZERO = "0 tokens: an empty sample, or a length that was never filled in"


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Lengths of consecutive rows of one source.

    Attributes:
        lengths: tokens of each row, 0 where the row is bad; int64, shape (num_rows,).
        bad: the first bad rows of the piece.
    """

    lengths: Int64Array
    bad: tuple[BadRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run of rows stands, for messages.

    Attributes:
        file: path, or None for an object in memory.
        unit: "row" (counted from 0) or "line" (counted from 1).
        stop_at_bad: a bad row ends the scan with an error.
    """

    file: str | None = None
    unit: str = "row"
    stop_at_bad: bool = True

    def bad(self, row: int, reason: str) -> BadRow:
        """Describe a bad row, or stop at it.

        Raises:
            BadLengthError: if bad rows are not to be skipped.
        """
        found = BadRow(self.file, row, reason, self.unit)
        if self.stop_at_bad:
            counted = "counting from 1" if self.unit == "line" else "counting from 0"
            raise BadLengthError(
                f"{found} ({counted}). Every sample needs a length of at least 1 token. Repair "
                f"the {self.unit}, or leave such rows out with on_bad='skip' (--on-bad skip), "
                f"which counts them"
            )
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a source that one thread reads from start to end.

    Attributes:
        file: path, or None for an object in memory.
        size: how much there is to read, in ``unit``; None if unknown.
        unit: what ``size`` counts: "rows" or "bytes".
        read: reads the share; its argument is called with the units done since the last call.
        is_histogram: the share is an expanded histogram: its order says nothing.
    """

    file: str | None
    size: int | None
    unit: str
    read: Callable[[Callable[[int], None]], Iterator[Piece]]
    is_histogram: bool = False


class RowLengths:
    """Collects lengths one row at a time."""

    def __init__(self, place: Place) -> None:
        """Start without rows; ``place`` says where they stand."""
        self._place = place
        self._lengths = array("q")
        self._bad: list[BadRow] = []

    def __len__(self) -> int:
        """Rows added so far."""
        return len(self._lengths)

    def add(self, length: int, row: int) -> None:
        """Add the length of ``row``; a value below 1 or absurdly large is a bad row."""
        if 1 <= length <= LARGEST_LENGTH:
            self._lengths.append(length)
        else:
            self.add_bad(row, number_fault(length))

    def add_bad(self, row: int, reason: str) -> None:
        """Add a row without a usable length, or stop at it."""
        self._lengths.append(0)
        if len(self._bad) < NUM_LISTED:
            self._bad.append(self._place.bad(row, reason))

    def piece(self) -> Piece:
        """Everything added so far."""
        return Piece(np.array(self._lengths, dtype=np.int64), tuple(self._bad))


def number_fault(value: Any) -> str:
    """Why a number is no length, in words."""
    if value != value:  # noqa: PLR0124 - NaN is the one number that differs from itself
        return "NaN is not a length"
    if value in (float("inf"), float("-inf")):
        return f"{value} is not a length"
    if value != int(value):
        return f"fractional: {value!r} is not a whole number of tokens"
    if value == 0:
        return ZERO
    if value < 0:
        return f"negative: {int(value):,} tokens"
    return f"too large: {int(value):,} is above 2**53"


def check_numbers(
    values: npt.NDArray[Any], place: Place, first_row: int, valid: npt.NDArray[np.bool_] | None
) -> Piece:
    """Turn an array of numbers into lengths.

    Args:
        values: integers or floats of any width, shape (n,).
        place: where they stand.
        first_row: row number of ``values[0]``.
        valid: False where the row is null; None if no row is; shape (n,).
    """
    if values.size == 0:
        return Piece(np.empty(0, np.int64))
    whole = valid is None and values.dtype.kind in "iu"
    if whole and int(values.min()) >= 1 and int(values.max()) <= LARGEST_LENGTH:
        return Piece(values.astype(np.int64, copy=False))
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        good = (values >= 1) & (values <= LARGEST_LENGTH)
        if values.dtype.kind == "f":
            good &= np.trunc(values) == values
        if valid is not None:
            good &= valid
    lengths = np.where(good, values, values.dtype.type(0)).astype(np.int64)
    bad = []
    for index in np.flatnonzero(~good)[:NUM_LISTED].tolist():
        null = valid is not None and not valid[index]
        reason = NULL if null else number_fault(values[index].item())
        bad.append(place.bad(first_row + index, reason))
    return Piece(lengths, tuple(bad))
