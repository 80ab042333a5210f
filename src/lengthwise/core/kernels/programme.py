"""The optimiser's loops: cost table, dynamic programme, local search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.expectation import bucket_cost

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.support import CostTable, Float64Array

    Int32Array = npt.NDArray[np.int32]

_GAIN = 1e-10
"""Relative gain below which a move is not worth making: rounding."""


@kernel
def fill_rows(
    edges: Int64Array, first: int, step: int, table: CostTable, work: int, out: Float64Array
) -> None:
    """Cost of the bucket between every two edges, for rows ``first``, ``first + step``, ..."""
    for i in range(first, edges.size - 1, step):
        for j in range(i + 1, edges.size):
            out[i, j] = bucket_cost(edges[i], edges[j], table, work)[1]


@kernel
def solve(costs: Float64Array, most: int) -> tuple[Float64Array, Int32Array]:
    """The plain dynamic programme over all edges.

    Args:
        costs: ``costs[i, j]`` for the bucket from edge i to edge j, shape (E, E).
        most: the largest number of buckets.

    Returns:
        Least total for exactly k buckets, infinite where there are too few edges, shape
        (most + 1,); and ``came[k, j]``, where the last of k buckets that end at edge j begins.
    """
    size = costs.shape[0]
    totals = np.full(most + 1, np.inf)
    came = np.full((most + 1, size), -1, np.int32)
    best = np.full(size, np.inf)
    best[0] = 0.0
    for k in range(1, most + 1):
        fresh = np.full(size, np.inf)
        for i in range(k - 1, size - 1):
            base = best[i]
            if base == np.inf:
                continue
            for j in range(i + 1, size):
                value = base + costs[i, j]
                if value < fresh[j]:
                    fresh[j] = value
                    came[k, j] = i
        best = fresh
        totals[k] = best[size - 1]
    return totals, came


@kernel
def _push(stack: Int64Array, depth: int, low: int, high: int, least: int, most: int) -> int:
    """Put a task on the stack: ends ``[low, high)`` whose bucket begins in ``[least, most]``."""
    stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = low, high, least, most
    return depth + 1


@kernel
def solve_padding_ceiling(
    cum: Int64Array, padded: Int64Array, most: int
) -> tuple[Float64Array, Int32Array]:
    """Divide and conquer at full resolution for the cost ``samples * longest``.

    That cost satisfies the quadrangle inequality, so the best beginning of the last bucket never
    moves back when its end moves on, and halving finds it in O(D log D) for each k.
    Returns what `solve` returns, with every point an edge.
    """
    size = padded.size + 1
    totals = np.full(most + 1, np.inf)
    came = np.full((most + 1, size), -1, np.int32)
    best = np.full(size, np.inf)
    best[0] = 0.0
    stack = np.empty((128, 4), np.int64)
    for k in range(1, most + 1):
        fresh = np.full(size, np.inf)
        depth = _push(stack, 0, k, size, k - 1, size - 1)
        while depth > 0:
            depth -= 1
            low, high = stack[depth, 0], stack[depth, 1]
            least, most_at = stack[depth, 2], stack[depth, 3]
            if low >= high:
                continue
            j = (low + high) // 2
            at = -1
            for i in range(least, min(most_at, j - 1) + 1):
                value = best[i] + float(cum[j] - cum[i]) * padded[j - 1]
                if value < fresh[j]:
                    fresh[j] = value
                    at = i
            came[k, j] = at
            depth = _push(stack, depth, low, j, least, at)
            depth = _push(stack, depth, j + 1, high, at, most_at)
        best = fresh
        totals[k] = best[size - 1]
    return totals, came


@kernel
def _try_move(
    edges: Int64Array, at: int, shift: int, table: CostTable, work: int, costs: Float64Array
) -> bool:
    place = edges[at] + shift
    if place <= edges[at - 1] or place >= edges[at + 1]:
        return False
    left = bucket_cost(edges[at - 1], place, table, work)[1]
    old = costs[at - 1] + costs[at]
    if left >= old:
        return False
    right = bucket_cost(place, edges[at + 1], table, work)[1]
    if left + right >= old * (1.0 - _GAIN):
        return False
    edges[at], costs[at - 1], costs[at] = place, left, right
    return True


@kernel
def refine(edges: Int64Array, step: int, table: CostTable, work: int) -> float:
    """Move inner edges while that lowers the cost, by ever smaller steps down to one point.

    Args:
        edges: K + 1 rising edges; the inner ones are moved in place.
        step: the first step, in points.
        table: counts, sizes and costs.
        work: as in ``bucket_cost``.

    Returns:
        The total cost. No move of one edge by one point lowers it further.
    """
    number = edges.size - 1
    costs = np.empty(number)
    for k in range(number):
        costs[k] = bucket_cost(edges[k], edges[k + 1], table, work)[1]
    stirred = np.ones(number + 1, np.bool_)  # edges next to which something moved
    while step >= 1:
        moved = False
        for at in range(1, number):
            if not stirred[at]:
                continue
            stirred[at] = False
            for direction in (-1, 1):
                while _try_move(edges, at, direction * step, table, work, costs):
                    moved = True
                    stirred[at - 1 : at + 2] = True
        if not moved:
            step //= 2
            stirred[:] = True
    return float(costs.sum())
