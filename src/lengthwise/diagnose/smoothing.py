"""What is nearby: means and lines over the steps around each, without the step itself.

A step s steps away weighs ``2 ** (-s / half_life)``, on both sides. Leaving out the step itself
keeps a curve from explaining its own noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Float64Array = npt.NDArray[np.float64]


def nearby_mean(values: Float64Array, weights: Float64Array, half_life: float) -> Float64Array:
    """Weighted mean of the rows around each; 0 where nothing around has weight.

    Args:
        values: (T, C).
        weights: of each value, at least 0, (T, C).
        half_life: in rows.
    """
    both = np.concatenate((values * weights, weights), axis=1)
    sums = _decayed(both, half_life) + _decayed(both[::-1], half_life)[::-1]
    totals, around = np.split(sums, 2, axis=1)
    found: Float64Array = np.divide(totals, around, out=np.zeros_like(totals), where=around > 0)
    return found


def level(values: Float64Array, weights: Float64Array, half_life: float) -> Float64Array:
    """The line through the values around each, at its place, by weighted least squares.

    A line, not a mean, so that a falling loss has no jump at its ends.

    Args:
        values: (T,).
        weights: of each value, at least 0, (T,).
        half_life: in values.
    """
    places = np.arange(values.size, dtype=np.float64)
    # Moments about each place t, of distances s = place - t, from moments about 0.
    powers = np.stack([np.ones_like(places), places, places**2], axis=1) * weights[:, None]
    table = np.concatenate((powers, powers[:, :2] * values[:, None]), axis=1)
    sums = _decayed(table, half_life) + _decayed(table[::-1], half_life)[::-1]
    n, first, second, total, moment = sums.T
    second = second - 2 * places * first + places**2 * n
    first, moment = first - places * n, moment - places * total
    spread = n * second - first**2
    is_line = spread > 1e-9 * np.maximum(n * second, 1e-300)
    line = (total * second - moment * first) / np.where(is_line, spread, 1.0)
    mean = total / np.where(n > 0, n, 1.0)
    return np.where(is_line, line, np.where(n > 0, mean, values))


def _decayed(rows: Float64Array, half_life: float) -> Float64Array:
    """Of each row the sum of those before it, each half as heavy after ``half_life`` rows."""
    decay = 0.5 ** (1 / half_life)
    found = np.zeros_like(rows)
    for place in range(1, len(rows)):
        found[place] = (found[place - 1] + rows[place - 1]) * decay
    return found
