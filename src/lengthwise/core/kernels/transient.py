"""Expected cost of a small bucket, position by position from the first sample to the last.

A bucket of a few batches never reaches the stationary law, and its last batch matters. So the law
of a batch start is followed through every position of the epoch. The chance that a batch starts at
position q with a first sample up to x is ``slope * F(x) - shift``, with one pair of numbers for all
x that admit the same batch size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.draws import grow_all, samples_up_to, thresholds

if TYPE_CHECKING:
    from lengthwise.core.support import CostTable, Float64Array


@kernel
def _ends_of_data(q: int, total: int, first: int, table: CostTable, reach: Float64Array) -> float:
    """Chance of a start at q because the samples left do not make up the next larger size."""
    result = 0.0
    for j in range(first):
        origin = q - table.sizes[j]
        if origin >= 0 and origin + table.sizes[j + 1] > total:
            result += reach[origin, 0]
    return result


@kernel
def start_laws(
    total: int, first: int, share: Float64Array, stay: Float64Array, table: CostTable
) -> tuple[Float64Array, Float64Array]:
    """Slope and shift per position and size, both of shape (total, number of sizes)."""
    number = share.size
    slope, shift = np.zeros((total, number)), np.zeros((total, number))
    reach = np.zeros((total, number))
    slope[0, :] = 1.0
    parts = np.zeros(number)
    gap = 1
    for j in range(first):
        gap = max(gap, table.sizes[j + 1] - table.sizes[j])
    for q in range(total):
        if q > 0:
            rising, falling = 0.0, 0.0
            parts[:] = 0.0
            if q + gap > total:
                rising += _ends_of_data(q, total, first, table, reach)
            for i in range(number):
                origin = q - table.sizes[first + i]
                if origin < 0:
                    break
                rising += reach[origin, i]
                if i + 1 < number and origin + table.sizes[first + i + 1] <= total:
                    parts[i + 1] = reach[origin, i + 1]
                    falling += reach[origin, i + 1]
            for i in range(number):
                rising -= parts[i] / share[i]
                falling -= parts[i]
                slope[q, i] = rising
                shift[q, i] = falling
        for i in range(number):
            reach[q, i] = max(0.0, slope[q, i] * share[i] - shift[q, i]) * stay[i]
    return slope, shift


@kernel
def _fill_law(
    a: int,
    first: int,
    slope: Float64Array,
    shift: Float64Array,
    below: Float64Array,
    table: CostTable,
    law: Float64Array,
) -> None:
    end = below.size
    for i in range(slope.size):
        begin = 0
        if i + 1 < slope.size:
            begin = max(0, min(end, table.fits[first + i + 1] - a))
        for p in range(begin, end):
            law[p] = max(0.0, slope[i] * (below[p] / below[-1]) - shift[i])
        end = begin


@kernel
def transient_cost(
    a: int, b: int, first: int, number: int, table: CostTable
) -> tuple[float, float]:
    """Expected batches and cost of the bucket, summed over the positions of batch starts."""
    total = table.cum[b] - table.cum[a]
    sizes = table.sizes
    share, stay, grow = thresholds(a, b, first, number, table)
    slope, shift = start_laws(total, first, share, stay, table)
    starts = slope[:, 0].sum() - shift[:, 0].sum()
    below = samples_up_to(a, b, table)
    slopes, shifts = np.zeros(number), np.zeros(number)
    used = total - sizes[0] + 1  # batches that start before this position can reach the size
    for q in range(used):
        slopes += slope[q]
        shifts += shift[q]
    law, inner_law, chance = np.zeros(b - a), np.zeros(b - a), np.ones(b - a)
    _fill_law(a, first, slopes, shifts, below, table, law)
    cost = 0.0
    for j in range(first + number):
        end, inner, going = min(table.fits[j], b) - a, 0, 0.0
        larger = j + 1 < first + number
        if larger:
            inner = max(0, min(table.fits[j + 1], b) - a)
            going = grow[j + 1 - first] if j >= first else 1.0
            left = max(0, total - sizes[j + 1] + 1)
            for q in range(left, used):
                slopes -= slope[q]
                shifts -= shift[q]
            used = left
            _fill_law(a, first, slopes, shifts, below, table, inner_law)
        before, inner_before = 0.0, 0.0
        for p in range(end):
            now = law[p] * chance[p]
            ending = now - before
            before = now
            if p < inner:
                inner_now = inner_law[p] * chance[p] * going
                ending -= inner_now - inner_before
                inner_before = inner_now
            cost += table.costs[table.rows[j] + a + p] * ending
        if larger:
            grow_all(chance, 0, inner, sizes[j], sizes[j + 1], below)
            law[:] = inner_law
    return starts, cost
