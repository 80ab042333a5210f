"""The loop of :mod:`lengthwise.core.remix`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.random import bounded, mix

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array


@kernel
def draw_steps(
    order: npt.NDArray[Any],
    arrivals: Int64Array,
    amounts: Int64Array,
    ends: Int64Array,
    pool_tokens: int,
    key: np.uint64,
) -> tuple[npt.NDArray[Any], Int64Array, int]:
    """Let every sample pass through the pool, in the order in which steps take them.

    Args:
        order: sample indices.
        arrivals: of each batch where it starts in ``order``, samples, real tokens; (B, 3).
        amounts: of each sample its tokens, and its cost of at least 1; (N, 2).
        ends: rising; step s ends where the cost of all samples so far comes to ``ends[s]``; (S,).
        pool_tokens: a batch enters while no more than this waits with it, or nothing waits.
        key: of the draws.

    Returns:
        The samples, one step after the other; of each step how many, and the batches that had
        entered by its end, (S, 2); the most tokens that ever waited.
    """
    num_samples = arrivals[:, 1].sum()
    drawn, pool = np.empty(num_samples, order.dtype), np.empty(num_samples, order.dtype)
    table = np.zeros((ends.size, 2), np.int64)
    waiting, size, entered, step, peak = 0, 0, 0, 0, 0
    cost = 0
    for draw in range(num_samples):
        while entered < len(arrivals) and (
            size == 0 or waiting + arrivals[entered, 2] <= pool_tokens
        ):
            first, count = arrivals[entered, 0], arrivals[entered, 1]
            pool[size : size + count] = order[first : first + count]
            size += count
            waiting += arrivals[entered, 2]
            entered += 1
        peak = max(peak, waiting)
        place = np.int64(bounded(mix(key, np.uint64(draw)), np.uint64(size)))
        sample = pool[place]
        size -= 1
        pool[place] = pool[size]
        waiting -= amounts[sample, 0]
        # A sample belongs to the step in which the middle of its cost falls.
        while step < ends.size - 1 and 2 * cost + amounts[sample, 1] >= 2 * ends[step]:
            step += 1
        cost += amounts[sample, 1]
        drawn[draw] = sample
        table[step, 0] += 1
        table[step, 1] = entered
    return drawn, table, peak
