"""Random numbers that never change: the same on every platform, numpy and numba version.

Word ``i`` of the stream ``key`` is ``mix(key, i)``, so a draw is addressed, not consumed: any
place of any stream can be computed alone and in any order, and there is no state to save. The
mixing is that of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
OOPSLA 2014), which passes the usual statistical batteries. Streams of different keys are
unrelated because keys come from :func:`lengthwise.core.random.derive_key`. Nothing here is meant
for cryptography.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ROUND = np.uint64(0xD1342543DE82EF95)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_SMALL = np.uint64(4096)


@kernel
def mix(key: np.uint64, counter: np.uint64) -> np.uint64:
    """Word ``counter`` of the stream ``key``: 64 random bits."""
    word = np.uint64(key) + np.uint64(counter) * _GAMMA
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@kernel
def mix_at(counters: Int64Array, key: np.uint64, out: npt.NDArray[np.uint64]) -> None:
    """Fill ``out`` with the words of the stream ``key`` at ``counters``; same shape."""
    stream = np.uint64(key)
    for i in range(counters.size):
        out[i] = mix(stream, np.uint64(counters[i]))


@kernel
def bounded(word: np.uint64, bound: np.uint64) -> np.uint64:
    """Turn 64 random bits into an integer in ``[0, bound)``, for ``1 <= bound <= 2**32``.

    The high half of the 128-bit product (Lemire: Fast random integer generation in an interval,
    2019), without rejection: every value has probability ``1 / bound`` within a relative error
    of ``bound / 2**64 <= 2**-32``. One word a draw keeps draws addressable.
    """
    low = ((word & _LOW_HALF) * bound) >> _32
    return ((word >> _32) * bound + low) >> _32


@kernel
def bounded_range(bound: int, key: np.uint64, out: Int64Array) -> None:
    """Fill ``out`` with random integers in ``[0, bound)``: draw ``i`` of the stream at place i."""
    stream = np.uint64(key)
    for i in range(out.size):
        out[i] = np.int64(bounded(mix(stream, np.uint64(i)), np.uint64(bound)))


@kernel
def shuffle_range(array: npt.NDArray[Any], lo: int, hi: int, key: np.uint64) -> None:
    """Put ``array[lo:hi]`` into random order, in place (Fisher-Yates; at most 2**32 entries).

    The order depends on ``hi - lo`` and ``key`` alone, not on ``lo`` or the array's type.
    """
    stream = np.uint64(key)
    for last in range(hi - lo - 1, 0, -1):
        word = mix(stream, np.uint64(last))
        other = lo + np.int64(bounded(word, np.uint64(last + 1)))
        here = lo + last
        array[here], array[other] = array[other], array[here]


@kernel
def shuffle_rows(matrix: npt.NDArray[Any], key: np.uint64) -> None:
    """Put each row of ``matrix``, shape (rows, columns), into its own random order, in place."""
    for row in range(matrix.shape[0]):
        shuffle_range(matrix[row], 0, matrix.shape[1], mix(key, np.uint64(row)))


@kernel
def permute(index: int, size: int, key: np.uint64) -> np.int64:
    """Where a keyed permutation of ``range(size)`` sends ``index``, in constant time.

    ``index`` is written as a place in a grid of ``rows * columns >= size`` cells, both about
    ``sqrt(size)``. Feistel rounds in turn add a random function of the column to the row and of
    the row to the column: 6 of them, or 24 below 4,096, where 6 leave a visible bias. A result
    outside ``range(size)`` is sent through again (cycle walking; Black and Rogaway: Ciphers with
    arbitrary finite domains, 2002). The grid has fewer than ``2 * sqrt(size) + 2`` cells too
    many, so a second pass is rare. ``rows`` is even, since sums modulo odd numbers make even
    permutations only.

    Args:
        index: in ``[0, size)``.
        size: from 1 to ``2**62``.
        key: which permutation.
    """
    rows, columns = permutation_grid(size)
    return permute_in_grid(index, size, rows, columns, key)


@kernel
def permutation_grid(size: int) -> tuple[np.uint64, np.uint64]:
    """Rows and columns of the grid in which :func:`permute` permutes ``range(size)``."""
    cells = np.uint64(size)
    columns = np.uint64(np.sqrt(np.float64(size)))
    while columns * columns < cells:
        columns += _ONE
    while columns > _ONE and (columns - _ONE) * (columns - _ONE) >= cells:
        columns -= _ONE
    rows = (cells + columns - _ONE) // columns
    return rows + rows % _TWO, columns


@kernel
def permute_in_grid(
    index: int, size: int, rows: np.uint64, columns: np.uint64, key: np.uint64
) -> np.int64:
    """As :func:`permute`, where many places of one permutation share its grid."""
    cells = np.uint64(size)
    pairs_of_rounds = np.uint64(12) if cells < _SMALL else np.uint64(3)
    place = np.uint64(index)
    while True:
        row = place // columns
        column = place - row * columns
        stream = np.uint64(key)
        for _ in range(pairs_of_rounds):
            stream += _ROUND
            row += bounded(mix(stream, column), rows)
            row -= rows if row >= rows else np.uint64(0)
            stream += _ROUND
            column += bounded(mix(stream, row), columns)
            column -= columns if column >= columns else np.uint64(0)
        place = row * columns + column
        if place < cells:
            return np.int64(place)


@kernel
def permute_range(first: int, size: int, key: np.uint64, out: npt.NDArray[Any]) -> None:
    """Fill ``out[i]`` with ``permute(first + i, size, key)``; ``first + len(out) <= size``."""
    rows, columns = permutation_grid(size)
    for i in range(out.size):
        out[i] = permute_in_grid(first + i, size, rows, columns, key)
