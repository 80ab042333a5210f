"""Finding the best edges: a grid, an exact programme on it, and a local search to single tokens.

The programme compares every set of at most K buckets whose edges lie on the grid, at the expected
cost (where there are thousands of lengths, with neighbours put together). The local search
then moves single edges until no move of one token lowers the cost. A second run on a grid of half
the spacing shows what a finer grid still wins; the better of the two is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.cost import PaddedTokens
from lengthwise.core.support import (
    CostTable,
    Support,
    build_support,
    build_table,
    coarsen,
    spread_cuts,
)
from lengthwise.core.threads import default_threads, run_all

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.cost import CostModel
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array

    Solved = tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]

GRID_EDGES = 128
"""Edges of the first grid; the second has twice as many."""
GRID_POINTS = 512
"""Distinct lengths that the cost table of a grid tells apart, about. Costs are off by up to a tenth
of a percent there; the local search tells them all apart again."""
REFINE_POINTS = 1 << 13
"""Distinct lengths that the local search tells apart; all of them, in most data."""
CEILING_EDGES = 2048
"""Edges of the grid where batches are padded to the bucket's top, whose cost is quick."""
_TIE = 1e-12
SEARCH_WORK = 4_000
"""Samples times sizes up to which small buckets are followed sample by sample in a search."""


@dataclass(frozen=True, slots=True)
class Found:
    """Edges found for a number of buckets.

    Attributes:
        edges: K + 1 rising lengths in tokens: 0, then one above the longest of each bucket.
        cost: their expected cost, as the search sees it.
        grid_cost: the cost of the best edges on the grid, before they were moved.
    """

    edges: tuple[int, ...]
    cost: float
    grid_cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What to minimise, prepared once for every number of buckets.

    Attributes:
        support: the points that edges can lie between.
        table: cost of every legal batch over these points.
        limits: the batch limits.
        model: the cost model.
        ceiling: whether batches are padded to their bucket's top.
    """

    support: Support
    table: CostTable
    limits: BatchLimits
    model: CostModel
    ceiling: bool

    @classmethod
    def build(
        cls, histogram: LengthHistogram, limits: BatchLimits, model: CostModel, *, ceiling: bool
    ) -> Problem:
        """Prepare a histogram; lengths beyond a number are put together for the search.

        Raises:
            DataError: there are no samples.
            OversizeError: a sample fits no batch.
        """
        support = build_support(histogram, limits, most_split=GRID_EDGES)
        if not (ceiling and isinstance(model, PaddedTokens)):
            whole = np.array([0, len(support)])
            support, _ = coarsen(support, limits, whole, REFINE_POINTS, top=ceiling)
        return cls(support, build_table(support, limits, model), limits, model, ceiling)

    @property
    def work(self) -> int:
        """How the kernels are to look at a bucket."""
        from lengthwise.core.kernels.expectation import CEILING

        return CEILING if self.ceiling else SEARCH_WORK

    @property
    def exact_everywhere(self) -> bool:
        """Whether divide and conquer finds the best edges at full resolution."""
        return self.ceiling and isinstance(self.model, PaddedTokens)

    def grid(self, number: int) -> Int64Array:
        """About ``number`` candidate edges, as indices of points; all there are if fewer."""
        if self.exact_everywhere:
            return np.arange(len(self.support) + 1)
        return spread_cuts(self.support, number)

    def solve(self, grid: Int64Array, most: int) -> Solved:
        """Totals and choices for every number of buckets up to ``most``, on a grid."""
        from lengthwise.core.kernels import programme

        most = min(most, grid.size - 1)
        if self.exact_everywhere:
            return programme.solve_padding_ceiling(self.table.cum, self.support.reach, most)
        return programme.solve(self._grid_costs(grid), most)

    def _grid_costs(self, grid: Int64Array) -> npt.NDArray[np.float64]:
        """Cost of the bucket between every two edges of a grid, shape (E, E)."""
        from lengthwise.core.kernels.programme import fill_rows

        coarse, edges = coarsen(self.support, self.limits, grid, GRID_POINTS, top=self.ceiling)
        table = self.table
        if coarse is not self.support:
            table = build_table(coarse, self.limits, self.model)
        costs = np.full((grid.size, grid.size), np.inf)
        threads = default_threads()
        tasks = [
            partial(fill_rows, edges, first, threads, table, self.work, costs)
            for first in range(threads)
        ]
        run_all(tasks, threads)
        return costs

    def trace(self, grid: Int64Array, solved: Solved, number: int) -> Int64Array:
        """Edges (indices of points) of the best at most ``number`` buckets on a grid."""
        totals, came = solved
        least = float(totals[: number + 1].min()) * (1 + _TIE)
        k = int(np.argmax(totals <= least))  # of equals, the fewest buckets
        place = grid.size - 1
        edges = [int(grid[place])]
        while k > 0:
            place = int(came[k, place])
            edges.append(int(grid[place]))
            k -= 1
        return np.array(edges[::-1], np.int64)

    def improve(self, edges: Int64Array, grid: Int64Array) -> Found:
        """Move edges to single points while that lowers the cost."""
        from lengthwise.core.kernels.programme import refine

        before = refine(edges.copy(), 0, self.table, self.work)
        cost = before
        if grid.size <= len(self.support):
            step = max(1, len(self.support) // grid.size)
            cost = refine(edges, step, self.table, self.work)
        tops = self.support.tops[edges[1:] - 1] + 1
        return Found((0, *(int(top) for top in tops)), cost, before)
