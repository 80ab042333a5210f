"""What is nearby: means and parabolas over the steps around each, without the step itself.

A step s steps away weighs ``2 ** (-s / half_life)``, on both sides. Leaving out the step itself
keeps a curve from explaining its own noise.
"""

from __future__ import annotations

import math
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
    """The parabola through the values around each, at its place, by weighted least squares.

    Not a mean: a loss that falls steeply at first would lie off it for that reason alone. Of too
    few values for a parabola it is the one with the smallest coefficients; of none, the value.

    Args:
        values: (T,).
        weights: of each value, at least 0, (T,).
        half_life: in values.
    """
    rows = np.stack((weights, weights * values), axis=1)
    before = _moments(rows, half_life)
    # Seen from the other end, distances have the other sign.
    signs = (-1.0) ** np.arange(5)[:, None]
    sums = before + _moments(rows[::-1], half_life)[::-1] * signs
    around, total = sums[:, :, 0], sums[:, :3, 1]
    normal = np.stack([around[:, power : power + 3] for power in range(3)], axis=1)
    solved = np.linalg.pinv(normal, rcond=1e-9, hermitian=True) @ total[:, :, None]
    return np.where(around[:, 0] > 0, solved[:, 0, 0], values)


def _moments(rows: Float64Array, half_life: float) -> Float64Array:
    """Sums of earlier rows times powers 0 to 4 of their distance, decayed; shape (T, 5, C).

    Distances are counted in half-lives, so that no power is far larger than another.
    """
    decay, unit = 0.5 ** (1 / half_life), 1 / half_life
    # One step further away: (s + u)^k = sum over j of C(k, j) u^(k - j) s^j.
    further = np.array(
        [[math.comb(k, j) * unit ** (k - j) if j <= k else 0.0 for j in range(5)] for k in range(5)]
    )
    found = np.zeros((len(rows), 5, rows.shape[1]))
    for place in range(1, len(rows)):
        now = found[place - 1].copy()
        now[0] += rows[place - 1]
        found[place] = decay * (further @ now)
    return found


def _decayed(rows: Float64Array, half_life: float) -> Float64Array:
    """Of each row the sum of those before it, each half as heavy after ``half_life`` rows."""
    decay = 0.5 ** (1 / half_life)
    found = np.zeros_like(rows)
    for place in range(1, len(rows)):
        found[place] = (found[place - 1] + rows[place - 1]) * decay
    return found
