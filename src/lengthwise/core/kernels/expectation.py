"""The expected cost of one bucket that is packed greedily in random order.

Words used here. A *point* is a distinct padded length; bucket ``[a, b)`` holds the points of those
indices. ``cum[p]`` samples lie below point ``p``. ``sizes[j]`` are the batch sizes that may occur,
rising; a batch of ``sizes[j]`` samples holds no point at or above ``fits[j]``. ``costs`` has one
row per size: a batch of ``sizes[j]`` samples whose longest is point ``p`` costs
``costs[rows[j] + p]``.

A batch's first sample has the distribution P over points, all later ones F. The chance that the
next ``n - 1`` samples stay below a threshold too is drawn without replacement, as in a real epoch:
``(c - 1) ... (c - n + 1) / ((N - 1) ... (N - n + 1))`` with ``c`` of ``N`` samples below it.

Three routes, all of which count the unfinished last batch: `_constant_cost` where only one size
can occur, `_transient_cost` position by position for small buckets, and `_stationary_cost` with
the stationary law of the chain of first samples for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Float64Array = npt.NDArray[np.float64]

NEGLIGIBLE = 1e-17
EXACT_BELOW = 64
"""Up to this many batches, draws without replacement are multiplied out one by one."""


@kernel
def _power(base: float, exponent: int) -> float:
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel
def _stay(c: int, total: int, n: int) -> float:
    """Chance that ``n - 1`` more draws are among ``c`` of ``total``, when the first one was."""
    if c < n:
        return 0.0
    if total > EXACT_BELOW * n:  # the middle factor to the power; relative error below n**3 / c**2
        half = 0.5 * n
        return _power((c - half) / (total - half), n - 1)
    result = 1.0
    for drawn in range(1, n):
        result *= (c - drawn) / (total - drawn)
    return result


@kernel
def _grow(c: int, total: int, n: int, larger: int) -> float:
    """Chance that a batch of ``n`` below a threshold grows to ``larger`` below it."""
    result = 1.0
    for drawn in range(n, larger):
        result *= max(0.0, (c - drawn) / (total - drawn))
    return result


@kernel
def _first_size(b: int, total: int, sizes: Int64Array, fits: Int64Array) -> int:
    """Index of the largest size that the bucket's longest sample always allows."""
    low, high = 0, sizes.size - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits[middle] >= b and sizes[middle] <= total:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _count_sizes(
    a: int, b: int, first: int, cum: Int64Array, sizes: Int64Array, fits: Int64Array
) -> int:
    """How many sizes from ``first`` on have a chance that matters."""
    total = cum[b] - cum[a]
    number = 1
    while first + number < sizes.size:
        n, end = sizes[first + number], min(fits[first + number], b)
        if n > total or end <= a or _stay(cum[end] - cum[a], total, n) < NEGLIGIBLE:
            break
        number += 1
    return number


@kernel
def _thresholds(
    a: int, b: int, first: int, number: int, cum: Int64Array, sizes: Int64Array, fits: Int64Array
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Per size: share of samples below its threshold, chance to stay there, chance to grow to it."""
    total = cum[b] - cum[a]
    share, stay, grow = np.ones(number), np.ones(number), np.ones(number)
    for i in range(1, number):
        c = cum[min(fits[first + i], b)] - cum[a]
        share[i] = c / total
        stay[i] = _stay(c, total, sizes[first + i])
        grow[i] = _grow(c, total, sizes[first + i - 1], sizes[first + i])
    return share, stay, grow


@kernel
def _below(a: int, b: int, cum: Int64Array) -> Float64Array:
    """Samples of the bucket up to and including each point."""
    result = np.empty(b - a)
    for p in range(a, b):
        result[p - a] = cum[p + 1] - cum[a]
    return result


@kernel
def _expected_row(
    a: int, row: int, n: int, law: Float64Array, below: Float64Array, costs: Float64Array
) -> float:
    """Expected cost of ``n`` samples of which the first follows ``law`` (a cumulative share)."""
    total = int(below[-1])
    result, before = 0.0, 0.0
    for p in range(below.size):
        now = law[p] * _stay(int(below[p]), total, n)
        result += costs[row + a + p] * (now - before)
        before = now
    return result


@kernel
def _constant_cost(
    a: int,
    b: int,
    first: int,
    cum: Int64Array,
    sizes: Int64Array,
    rows: Int64Array,
    costs: Float64Array,
) -> tuple[float, float]:
    """Batches and cost where every batch but the last has ``sizes[first]`` samples. Exact."""
    below = _below(a, b, cum)
    share = below / below[-1]
    rest = cum[b] - cum[a]
    batches, cost = 0, 0.0
    while rest > 0:
        j = min(first, np.searchsorted(sizes, rest, side="right") - 1)
        number = rest // sizes[j]
        cost += number * _expected_row(a, rows[j], sizes[j], share, below, costs)
        batches += number
        rest -= number * sizes[j]
    return float(batches), cost


@kernel
def _stationary(number: int, share: Float64Array, stay: Float64Array) -> Float64Array:
    """Chance of each size or more, under the stationary law of the first sample."""
    reach = share * stay
    fresh = reach.copy()
    for _ in range(500):
        slope = reach.sum()
        shift = slope - 1.0
        change = 0.0
        for i in range(1, number):
            slope -= reach[i] / share[i]
            shift -= reach[i]
            fresh[i] = max(0.0, share[i] * slope - shift) * stay[i]
            change = max(change, abs(fresh[i] - reach[i]))
        reach[:] = fresh
        if change < 1e-15:
            break
    return reach


@kernel
def _first_law(
    a: int,
    first: int,
    share: Float64Array,
    reach: Float64Array,
    below: Float64Array,
    fits: Int64Array,
) -> Float64Array:
    """P at every point: linear in F between two thresholds."""
    result = below / below[-1]
    slope = reach.sum()
    shift = slope - 1.0
    i = 0
    for p in range(below.size - 1, -1, -1):
        while i + 1 < reach.size and fits[first + i + 1] > a + p:
            i += 1
            slope -= reach[i] / share[i]
            shift -= reach[i]
        result[p] = max(0.0, result[p] * slope - shift)
    return result


@kernel
def _partial_sum(
    a: int,
    first: int,
    law: Float64Array,
    below: Float64Array,
    sizes: Int64Array,
    rows: Int64Array,
    costs: Float64Array,
) -> float:
    """Cost of a last batch below ``sizes[first]`` samples, summed over the sizes it may have."""
    if first <= 8:
        result = 0.0
        for j in range(first):
            gap = sizes[j + 1] - sizes[j]
            result += gap * _expected_row(a, rows[j], sizes[j], law, below, costs)
        return result
    result, end = 0.0, first
    if first % 2 == 1:
        end = first - 1
        gap = sizes[first] - sizes[end]
        result = gap * _expected_row(a, rows[end], sizes[end], law, below, costs)
    values = np.empty(3)  # Simpson's rule, and from the integral to the left-hand sum
    for i in range(3):
        j = i * (end // 2)
        values[i] = _expected_row(a, rows[j], sizes[j], law, below, costs)
    span = sizes[end] - sizes[0]
    mean = (values[0] + 4.0 * values[1] + values[2]) / 6.0
    return result + span * mean - 0.5 * (values[2] - values[0]) * span / end


@kernel
def _stationary_cost(
    a: int,
    b: int,
    first: int,
    number: int,
    cum: Int64Array,
    sizes: Int64Array,
    fits: Int64Array,
    rows: Int64Array,
    costs: Float64Array,
) -> tuple[float, float]:
    """Batches and cost with every batch start in the stationary law, plus the epoch's two ends."""
    total = cum[b] - cum[a]
    share, stay, grow = _thresholds(a, b, first, number, cum, sizes, fits)
    reach = _stationary(number, share, stay)
    mean, pairs = float(sizes[first]), 0.5 * sizes[first] * (sizes[first] - 1.0)
    for i in range(1, number):
        n, smaller = float(sizes[first + i]), float(sizes[first + i - 1])
        mean += (n - smaller) * reach[i]
        pairs += 0.5 * (n * (n - 1.0) - smaller * (smaller - 1.0)) * reach[i]
    # A renewal process that starts with a renewal has E[S(S-1)] / 2 E[S]**2 batches more.
    starts = (total + pairs / mean) / mean
    below = _below(a, b, cum)
    law = _first_law(a, first, share, reach, below, fits)
    sums = np.zeros(b - a)
    chance = np.empty(b - a)
    for p in range(b - a):
        chance[p] = law[p] * _stay(int(below[p]), total, sizes[first])
    lowest = 0
    for i in range(number):
        j, n = first + i, sizes[first + i]
        end = min(fits[j], b) - a
        whole = starts - (n - 1) / mean
        inner, going = 0, 0.0
        if i + 1 < number:
            inner = max(0, min(fits[j + 1], b) - a)
            going = (starts - (sizes[j + 1] - 1) / mean) * grow[i + 1]
        while lowest < end and chance[lowest] < NEGLIGIBLE:
            lowest += 1
        row = rows[j] + a
        if lowest < end:
            factor = whole - going if lowest < inner else whole
            sums[lowest] += costs[row + lowest] * chance[lowest] * factor
        for p in range(lowest + 1, inner):
            sums[p] += costs[row + p] * (chance[p] - chance[p - 1]) * (whole - going)
        for p in range(max(lowest + 1, inner), end):
            sums[p] += costs[row + p] * (chance[p] - chance[p - 1]) * whole
        if i + 1 < number:
            for drawn in range(n, sizes[j + 1]):
                scale = 1.0 / (total - drawn)
                for p in range(lowest, inner):
                    chance[p] *= max(0.0, (below[p] - drawn) * scale)
    cost = sums.sum() + _partial_sum(a, first, law, below, sizes, rows, costs) / mean
    return starts, cost


@kernel
def _start_laws(
    total: int,
    first: int,
    number: int,
    share: Float64Array,
    stay: Float64Array,
    sizes: Int64Array,
) -> tuple[Float64Array, Float64Array]:
    """Slope and shift, per position and size, of the law of a batch start there.

    The chance that a batch starts at position ``q`` with a first sample up to x is
    ``slope[q, i] * F(x) - shift[q, i]`` where x admits ``sizes[first + i]`` but no more.
    """
    slope, shift = np.zeros((total, number)), np.zeros((total, number))
    reach = np.zeros((total, number))
    slope[0, :] = 1.0
    gap = 1
    for j in range(first):
        gap = max(gap, sizes[j + 1] - sizes[j])
    for q in range(total):
        if q > 0:
            rising = 0.0
            if q + gap > total:  # sizes below the first end a batch only at the data's end
                for j in range(first):
                    origin = q - sizes[j]
                    if origin >= 0 and origin + sizes[j + 1] > total:
                        rising += reach[origin, 0]
            falling = 0.0
            for i in range(number):
                origin = q - sizes[first + i]
                if origin < 0:
                    break
                rising += reach[origin, i]
                if i + 1 < number and origin + sizes[first + i + 1] <= total:
                    shift[q, i + 1] = reach[origin, i + 1]  # for now: the part of size i + 1
                    falling += reach[origin, i + 1]
            for i in range(number):
                part = shift[q, i]
                rising -= part / share[i]
                falling -= part
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
    fits: Int64Array,
    law: Float64Array,
) -> None:
    total = below[-1]
    end = below.size
    for i in range(slope.size):
        begin = 0
        if i + 1 < slope.size:
            begin = max(0, min(end, fits[first + i + 1] - a))
        for p in range(begin, end):
            law[p] = max(0.0, slope[i] * (below[p] / total) - shift[i])
        end = begin


@kernel
def _transient_cost(
    a: int,
    b: int,
    first: int,
    number: int,
    cum: Int64Array,
    sizes: Int64Array,
    fits: Int64Array,
    rows: Int64Array,
    costs: Float64Array,
) -> tuple[float, float]:
    """Batches and cost, summed over the position at which a batch starts."""
    total = cum[b] - cum[a]
    share, stay, grow = _thresholds(a, b, first, number, cum, sizes, fits)
    slope, shift = _start_laws(total, first, number, share, stay, sizes)
    starts = slope[:, 0].sum() - shift[:, 0].sum()
    below = _below(a, b, cum)
    slopes, shifts = np.zeros(number), np.zeros(number)
    used = total - sizes[0] + 1
    for q in range(used):
        slopes += slope[q]
        shifts += shift[q]
    law, inner_law = np.zeros(b - a), np.zeros(b - a)
    _fill_law(a, first, slopes, shifts, below, fits, law)
    chance = np.ones(b - a)
    cost = 0.0
    for j in range(first + number):
        end = min(fits[j], b) - a
        inner = 0
        inner_law[:] = 0.0
        going = 0.0
        if j + 1 < first + number:
            for q in range(max(0, total - sizes[j + 1] + 1), used):
                slopes -= slope[q]
                shifts -= shift[q]
            used = max(0, total - sizes[j + 1] + 1)
            inner = max(0, min(fits[j + 1], b) - a)
            going = grow[j + 1 - first] if j + 1 > first else 1.0
            _fill_law(a, first, slopes, shifts, below, fits, inner_law)
        before, inner_before = 0.0, 0.0
        for p in range(end):
            now = law[p] * chance[p]
            inner_now = inner_law[p] * chance[p] * going
            ending = now - before
            if p < inner:
                ending -= inner_now - inner_before
            cost += costs[rows[j] + a + p] * ending
            before, inner_before = now, inner_now
        if j + 1 < first + number:
            for drawn in range(sizes[j], sizes[j + 1]):
                for p in range(inner):
                    chance[p] *= max(0.0, (below[p] - drawn) / (total - drawn))
            law[:] = inner_law
    return starts, cost


@kernel
def bucket_cost(
    a: int,
    b: int,
    cum: Int64Array,
    sizes: Int64Array,
    fits: Int64Array,
    rows: Int64Array,
    costs: Float64Array,
    work: int,
) -> tuple[float, float]:
    """Expected number of batches and expected cost of the bucket of points ``[a, b)``.

    ``work`` bounds samples times sizes up to which the position-by-position route is taken.
    """
    total = cum[b] - cum[a]
    first = _first_size(b, total, sizes, fits)
    number = _count_sizes(a, b, first, cum, sizes, fits)
    if number == 1 or sizes[first] == total:
        return _constant_cost(a, b, first, cum, sizes, rows, costs)
    if total * number <= work:
        return _transient_cost(a, b, first, number, cum, sizes, fits, rows, costs)
    return _stationary_cost(a, b, first, number, cum, sizes, fits, rows, costs)
