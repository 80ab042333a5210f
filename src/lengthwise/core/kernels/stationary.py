"""Expected cost of a large bucket, from the stationary law of a batch's first sample.

A batch's first sample has the law P, all later ones F (the bucket's own distribution), because the
sample that did not fit the batch before opens the next one. The chance of at least n samples is
``P(t_n) * stay(t_n, n)`` with ``t_n`` the threshold of size n. P is the fixed point of

    P(x) = F(x) * (sum_n S_n - sum_{m <= k} S_m / F_m) - sum_{m > k} S_m

where x admits k samples but no more, and S_n is the chance of size n or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.draws import (
    NEGLIGIBLE,
    expected_cost,
    grow_all,
    samples_up_to,
    stay_chance,
    thresholds,
)

if TYPE_CHECKING:
    from lengthwise.core.support import CostTable, Float64Array

_ROUNDS = 500
_SETTLED = 1e-15
_FEW_SIZES = 8


@kernel
def reach_chances(share: Float64Array, stay: Float64Array) -> Float64Array:
    """Chance of each size or more, once the law of the first sample has settled."""
    reach = share * stay
    fresh = reach.copy()
    for _ in range(_ROUNDS):
        slope = reach.sum()
        shift = slope - 1.0
        change = 0.0
        for i in range(1, reach.size):
            slope -= reach[i] / share[i]
            shift -= reach[i]
            fresh[i] = max(0.0, share[i] * slope - shift) * stay[i]
            change = max(change, abs(fresh[i] - reach[i]))
        reach[:] = fresh
        if change < _SETTLED:
            break
    return reach


@kernel
def first_law(
    a: int,
    first: int,
    share: Float64Array,
    reach: Float64Array,
    below: Float64Array,
    table: CostTable,
) -> Float64Array:
    """P at every point: linear in F between two thresholds."""
    result: Float64Array = below / below[-1]
    slope = reach.sum()
    shift = slope - 1.0
    i = 0
    for p in range(below.size - 1, -1, -1):
        while i + 1 < reach.size and table.fits[first + i + 1] > a + p:
            i += 1
            slope -= reach[i] / share[i]
            shift -= reach[i]
        result[p] = max(0.0, result[p] * slope - shift)
    return result


@kernel
def _partial_batches(
    a: int, first: int, law: Float64Array, below: Float64Array, table: CostTable
) -> float:
    """Cost of an unfinished batch below ``sizes[first]`` samples, summed over its sizes."""
    sizes = table.sizes
    result = 0.0
    end = first
    while end > 0 and (first <= _FEW_SIZES or end % 2 == 1):
        end -= 1
        result += (sizes[end + 1] - sizes[end]) * expected_cost(a, end, law, below, table)
    if end == 0:
        return result
    low = expected_cost(a, 0, law, below, table)
    middle = expected_cost(a, end // 2, law, below, table)
    high = expected_cost(a, end, law, below, table)
    mean = (low + 4.0 * middle + high) / 6.0  # Simpson's rule
    mean -= 0.5 * (high - low) / end  # from the integral to the left-hand sum
    return result + float(sizes[end] - sizes[0]) * mean


@kernel
def _add_endings(
    costs: Float64Array,
    chance: Float64Array,
    lowest: int,
    end: int,
    weight: float,
    sums: Float64Array,
) -> None:
    """Add the cost of batches whose longest is one of the points ``[lowest, end)``."""
    for p in range(lowest + 1, end):
        sums[p] += costs[p] * (chance[p] - chance[p - 1]) * weight


@kernel
def stationary_cost(
    a: int, b: int, first: int, number: int, table: CostTable
) -> tuple[float, float]:
    """Expected batches and cost of the bucket, both ends of the epoch counted.

    The process starts with a fresh batch, which adds ``E[S (S - 1)] / 2 E[S]`` samples' worth of
    batches (renewal theory), and stops after the last sample, wherever its batch stands.
    """
    total = table.cum[b] - table.cum[a]
    sizes, fits = table.sizes, table.fits
    share, stay, grow = thresholds(a, b, first, number, table)
    reach = reach_chances(share, stay)
    mean, pairs = float(sizes[first]), 0.5 * sizes[first] * (sizes[first] - 1.0)
    for i in range(1, number):
        n, smaller = float(sizes[first + i]), float(sizes[first + i - 1])
        mean += (n - smaller) * reach[i]
        pairs += 0.5 * (n * (n - 1.0) - smaller * (smaller - 1.0)) * reach[i]
    starts = (total + pairs / mean) / mean
    below = samples_up_to(a, b, table)
    law = first_law(a, first, share, reach, below, table)
    sums = np.zeros(b - a)
    chance = np.zeros(b - a)
    lowest = b - a
    while lowest > 0:
        here = law[lowest - 1] * stay_chance(int(below[lowest - 1]), total, sizes[first])
        if here < NEGLIGIBLE:
            break
        lowest -= 1
        chance[lowest] = here
    for i in range(number):
        j = first + i
        end, inner, going = min(fits[j], b) - a, 0, 0.0
        ending = starts - (sizes[j] - 1) / mean
        if i + 1 < number:
            inner = max(0, min(fits[j + 1], b) - a)
            going = (starts - (sizes[j + 1] - 1) / mean) * grow[i + 1]
        while lowest < end and chance[lowest] < NEGLIGIBLE:
            lowest += 1
        row = table.costs[table.rows[j] + a : table.rows[j] + a + end]
        if lowest < end:
            sums[lowest] += (
                row[lowest] * chance[lowest] * (ending - going if lowest < inner else ending)
            )
        split = max(lowest + 1, inner)
        _add_endings(row, chance, lowest, inner, ending - going, sums)
        _add_endings(row, chance, split - 1, end, ending, sums)
        if i + 1 < number:
            grow_all(chance, lowest, inner, sizes[j], sizes[j + 1], below)
    return starts, sums.sum() + _partial_batches(a, first, law, below, table) / mean
