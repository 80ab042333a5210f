"""What the ranks are dealt of every step by :meth:`lengthwise.core.remix.RemixPlan.for_ranks`."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    from lengthwise.core.limits import Int64Array


@kernel
def most_dealt(
    costs: Int64Array, tokens: Int64Array, edges: Int64Array, num_ranks: int
) -> Int64Array:
    """Deal every step's samples: the dearest first, each to the rank that has least.

    Args:
        costs: of samples, one step after the other; (N,).
        tokens: of them; (N,).
        edges: step s has the samples from ``edges[s]`` to ``edges[s + 1]``; (S + 1,).
        num_ranks: to deal to.

    Returns:
        Of each step the tokens of the rank that has most of them; (S,).
    """
    most = np.zeros(edges.size - 1, np.int64)
    for step in range(most.size):
        first, last = edges[step], edges[step + 1]
        loads = [(np.int64(0), rank) for rank in range(num_ranks)]
        dealt = np.zeros(num_ranks, np.int64)
        for place in np.argsort(-costs[first:last], kind="mergesort"):
            load, rank = loads[0]
            dealt[rank] += tokens[first + place]
            heapq.heapreplace(loads, (load + costs[first + place], rank))
        most[step] = dealt.max()
    return most
