"""Samples drawn at random from one bucket: what the expectation kernels share.

The words *point*, *size* and the arrays of a table are those of
:class:`lengthwise.core.support.CostTable`. Bucket ``[a, b)`` holds the points of those indices.

The chance that the next ``n - 1`` samples stay below a threshold too is drawn without replacement,
as in a real epoch: ``(c - 1) ... (c - n + 1) / ((N - 1) ... (N - n + 1))`` with ``c`` of the
bucket's ``N`` samples below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    from lengthwise.core.support import CostTable, Float64Array

NEGLIGIBLE = 1e-17
_EXACT_FACTORS = 64
_BLOCKS = 8
"""A product of more than 64 factors is taken in 8 blocks, each its middle factor to a power. Of a
bucket of two batches or more, that changes a chance by less than 0.1 %."""


@kernel
def power(base: float, exponent: int) -> float:
    """``base ** exponent`` by multiplication, so that every machine agrees on the last bit."""
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel
def grow_chance(c: int, total: int, n: int, larger: int) -> float:
    """Chance that a batch of ``n`` below a threshold grows to ``larger`` below it."""
    if c < larger:
        return 0.0
    length = 1 if larger - n <= _EXACT_FACTORS else -(-(larger - n) // _BLOCKS)
    result = 1.0
    for drawn in range(n, larger, length):
        size = min(length, larger - drawn)
        middle = drawn + 0.5 * (size - 1)
        result *= power((c - middle) / (total - middle), size)
    return result


@kernel
def stay_chance(c: int, total: int, n: int) -> float:
    """Chance that ``n - 1`` more draws are among ``c`` of ``total``, when the first one was."""
    if c < n:
        return 0.0
    if c == total:
        return 1.0
    if total > _EXACT_FACTORS * n:  # one block; off by about n**3 / 24 c**2
        half = 0.5 * n
        return power((c - half) / (total - half), n - 1)
    if total - c < min(n, _BLOCKS):  # fewer factors: none of the others is drawn
        result = total / c
        for other in range(total - c):
            result *= (total - n - other) / (total - other)
        return result
    return grow_chance(c, total, 1, n)


@kernel
def grow_all(
    chance: Float64Array, low: int, high: int, n: int, larger: int, below: Float64Array
) -> None:
    """Multiply ``chance[low:high]`` by the chance that a batch of ``n`` grows to ``larger``."""
    total = below[-1]
    if larger == n + 1:
        scale = 1.0 / (total - n)
        for p in range(low, high):
            chance[p] *= max(0.0, (below[p] - n) * scale)
        return
    for p in range(low, high):
        chance[p] *= grow_chance(int(below[p]), int(total), n, larger)


@kernel
def first_size(b: int, total: int, table: CostTable) -> int:
    """Index of the largest size that the bucket's longest sample always allows."""
    low, high = 0, table.sizes.size - 1
    while low < high:
        middle = (low + high + 1) // 2
        if table.fits[middle] >= b and table.sizes[middle] <= total:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def count_sizes(a: int, b: int, first: int, table: CostTable) -> int:
    """How many sizes from ``first`` on have a chance that matters."""
    total = table.cum[b] - table.cum[a]
    number = 1
    while first + number < table.sizes.size:
        n, end = table.sizes[first + number], min(table.fits[first + number], b)
        if n > total or end <= a:
            break
        if stay_chance(table.cum[end] - table.cum[a], total, n) < NEGLIGIBLE:
            break
        number += 1
    return number


@kernel
def thresholds(
    a: int, b: int, first: int, number: int, table: CostTable
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Per size: share of samples that allow it, chance to stay so, chance to grow to it."""
    total = table.cum[b] - table.cum[a]
    share, stay, grow = np.ones(number), np.ones(number), np.ones(number)
    for i in range(1, number):
        c = table.cum[min(table.fits[first + i], b)] - table.cum[a]
        share[i] = c / total
        stay[i] = stay_chance(c, total, table.sizes[first + i])
        grow[i] = grow_chance(c, total, table.sizes[first + i - 1], table.sizes[first + i])
    return share, stay, grow


@kernel
def samples_up_to(a: int, b: int, table: CostTable) -> Float64Array:
    """Samples of the bucket up to and including each point, shape (b - a,)."""
    result = np.empty(b - a)
    for p in range(a, b):
        result[p - a] = table.cum[p + 1] - table.cum[a]
    return result


@kernel
def expected_cost(
    a: int, j: int, law: Float64Array, below: Float64Array, table: CostTable
) -> float:
    """Cost of a batch of ``sizes[j]`` samples, the first of which follows ``law`` (cumulative)."""
    total = int(below[-1])
    row = table.rows[j] + a
    result = 0.0
    p = below.size - 1
    now = law[p]
    while p >= 0:
        before = 0.0
        if p > 0:
            before = law[p - 1] * stay_chance(int(below[p - 1]), total, table.sizes[j])
        if before < NEGLIGIBLE:  # and so are all shorter ones
            return float(result + table.costs[row + p] * now)
        result += table.costs[row + p] * (now - before)
        now = before
        p -= 1
    return result


@kernel
def constant_cost(a: int, b: int, first: int, table: CostTable) -> tuple[float, float]:
    """Batches and cost where every batch but the last has ``sizes[first]`` samples. Exact."""
    below = samples_up_to(a, b, table)
    share = below / below[-1]
    rest = table.cum[b] - table.cum[a]
    batches, cost = 0, 0.0
    while rest > 0:
        j = min(first, np.searchsorted(table.sizes, rest, side="right") - 1)
        number = rest // table.sizes[j]
        cost += number * expected_cost(a, j, share, below, table)
        batches += number
        rest -= number * table.sizes[j]
    return float(batches), cost


@kernel
def ceiling_cost(a: int, b: int, table: CostTable) -> tuple[float, float]:
    """Batches and cost where every batch is padded to the bucket's longest. Exact."""
    rest = table.cum[b] - table.cum[a]
    first = first_size(b, rest, table)
    batches, cost = 0, 0.0
    while rest > 0:
        j = min(first, np.searchsorted(table.sizes, rest, side="right") - 1)
        number = rest // table.sizes[j]
        cost += number * table.costs[table.rows[j] + b - 1]
        batches += number
        rest -= number * table.sizes[j]
    return float(batches), cost
