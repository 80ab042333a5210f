"""The expected cost of a bucket: which of the routes to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.draws import ceiling_cost, constant_cost, count_sizes, first_size
from lengthwise.core.kernels.stationary import stationary_cost
from lengthwise.core.kernels.transient import transient_cost

if TYPE_CHECKING:
    from lengthwise.core.support import CostTable

CEILING = -1
"""As ``work``: batches are padded to the bucket's longest, so nothing is left to chance."""


@kernel
def bucket_cost(a: int, b: int, table: CostTable, work: int) -> tuple[float, float]:
    """Expected number of batches and expected cost of the bucket of points ``[a, b)``.

    Args:
        a: first point.
        b: one past the last point.
        table: counts, sizes and costs.
        work: up to this many samples times sizes, position by position; above it, the stationary
            law. ``CEILING``: every batch is padded to the bucket's longest.
    """
    if work == CEILING:
        return ceiling_cost(a, b, table)
    total = table.cum[b] - table.cum[a]
    first = first_size(b, total, table)
    number = count_sizes(a, b, first, table)
    if number == 1:
        return constant_cost(a, b, first, table)
    if total * number <= work:
        return transient_cost(a, b, first, number, table)
    return stationary_cost(a, b, first, number, table)
