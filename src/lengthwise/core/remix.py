"""Batches formed by length, mixed again behind the stage where padding costs.

Where a frozen model reads the batches and another learns from what it makes of them, the two want
different things: the first wants equal lengths, the second wants every optimiser step to look like
the data. So batches pass whole through the first stage; behind it their samples wait in a pool,
from which steps draw at random. This module decides, before anything runs, which sample leaves the
pool in which step. Like every plan the result is a value, of the batches, the costs and the seed.
So each process knows it without a word from the others, a run resumes at any step, and what a run
will do to diversity can be measured beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.limits import require_int
from lengthwise.core.random import Purpose, stream_key
from lengthwise.errors import ConfigError, DataError, PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class RemixPlan:
    """Which samples each step takes, and how many batches must have arrived by then.

    Attributes:
        steps: as batches: step s is ``steps.batch(s)``; ``padded`` is the longest of its samples.
        costs: of every sample, shape (N,).
        batches_entered: batches that have entered the pool by the end of each step; int64, rising,
            shape (S,).
        arrivals: the batches themselves, in the order in which they enter.
        peak_tokens: most tokens that wait in the pool at any time.
    """

    steps: Batches
    costs: Int64Array
    batches_entered: Int64Array
    arrivals: Batches
    peak_tokens: int

    @property
    def num_steps(self) -> int:
        """Steps of the epoch; the same in every epoch of the same data and settings."""
        return len(self.steps)

    def step(self, index: int) -> Int64Array:
        """Samples of one step, over all ranks, in the order drawn; int64."""
        return self.steps.batch(index)

    def for_ranks(self, index: int, num_ranks: int) -> list[Int64Array]:
        """Samples of one step, dealt to ranks so that their costs are nearly equal.

        The dearest first, each to the rank that has least so far (Graham: Bounds on
        multiprocessing timing anomalies, 1969: within 4/3 of the best). A rank may get none where
        a step has fewer samples than ranks. Inside a rank the order drawn is kept.
        """
        samples = self.step(index)
        costs = self.costs[samples]
        loads = [(0, rank) for rank in range(num_ranks)]
        heapify(loads)
        places: list[list[int]] = [[] for _ in range(num_ranks)]
        for place in np.argsort(-costs, kind="stable").tolist():
            load, rank = loads[0]
            places[rank].append(place)
            heapreplace(loads, (load + int(costs[place]), rank))
        return [samples[np.sort(np.asarray(chosen, np.int64))] for chosen in places]

    def waiting(self, num_steps: int) -> Int64Array:
        """Samples that have entered the pool and not left it when ``num_steps`` are done.

        These are what a resumed run must make again. Int64, in the order of arrival.
        """
        if not 0 <= num_steps <= self.num_steps:
            raise PlanError(f"the plan has {self.num_steps:,} steps; asked for {num_steps:,}")
        if num_steps == 0:
            return np.empty(0, np.int64)
        entered = int(self.batches_entered[num_steps - 1])
        arrived, _ = self.arrivals.gather(np.arange(entered))
        num_taken = int(self.steps.sizes[:num_steps].sum())
        left = ~np.isin(arrived, self.steps.order[:num_taken])
        return arrived[left].astype(np.int64)


def remix(
    batches: Batches,
    lengths: npt.ArrayLike,
    costs: npt.ArrayLike,
    *,
    pool_tokens: int,
    step_cost: int,
    seed: int = 0,
    epoch: int = 0,
) -> RemixPlan:
    """Plan the steps that draw from a pool which batches fill.

    Steps cost ``step_cost`` or a little more, all the same to within one sample: their number is
    ``total cost // step_cost``, at least 1. It does not depend on the epoch.

    Args:
        batches: in the order in which they come; each sample at most once.
        lengths: tokens of every sample, shape (N,).
        costs: what every sample costs a step, integers of at least 1 for those in the batches: for
            a drafter its anchors. Shape (N,).
        pool_tokens: most tokens that wait. The wider, the more mixed: a step's samples come from
            about the last ``pool_tokens`` tokens. At least the largest batch's real tokens.
        step_cost: aimed at for one step, over all ranks.
        seed: any integer.
        epoch: each draws anew.

    Raises:
        ConfigError: a setting that cannot work.
        DataError: costs that are no such integers.
        PlanError: there are no batches.
    """
    from lengthwise.core.kernels.remix import draw_steps

    if not len(batches):
        raise PlanError("there are no batches to mix")
    sizes_of, costs_of = _by_sample(lengths, "lengths"), _by_sample(costs, "costs")
    members, _ = batches.gather(np.arange(len(batches)))
    dearest, total = _check_costs(costs_of, members)
    step_cost = require_int("step_cost", step_cost, least=1)
    if step_cost < dearest:
        raise ConfigError(
            f"step_cost must be at least the dearest sample's cost, {dearest:,}; got {step_cost:,}"
        )
    pool_tokens = _check_pool(pool_tokens, batches)
    num_steps = max(1, total // step_cost)
    ends = np.array([-(-total * (s + 1) // num_steps) for s in range(num_steps)], np.int64)
    drawn, table, peak = draw_steps(
        batches.order,
        np.column_stack((batches.starts, batches.sizes, batches.tokens)),
        np.column_stack((sizes_of, costs_of)),
        ends,
        pool_tokens,
        np.uint64(stream_key(seed, epoch, Purpose.REMIX)),
    )
    steps = _as_batches(drawn, table[:, 0].copy(), sizes_of)
    return RemixPlan(steps, costs_of, table[:, 1].copy(), batches, int(peak))


def _by_sample(values: npt.ArrayLike, name: str) -> Int64Array:
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name} must be one row of integers, got {array.dtype} {array.shape}")
    return array.astype(np.int64, copy=False)


def _check_costs(costs: Int64Array, members: npt.NDArray[Any]) -> tuple[int, int]:
    own = costs[members]
    if int(own.min()) < 1:
        sample = int(members[int(own.argmin())])
        raise DataError(
            f"costs must be at least 1, got {costs[sample]} for sample {sample:,}; leave out "
            f"samples that a step cannot learn from"
        )
    return int(own.max()), int(own.sum())


def _check_pool(pool_tokens: int, batches: Batches) -> int:
    largest = int(batches.tokens.max())
    pool_tokens = require_int("pool_tokens", pool_tokens, least=1)
    if pool_tokens < largest:
        raise ConfigError(
            f"pool_tokens must hold at least one batch, {largest:,} tokens; got {pool_tokens:,}"
        )
    return pool_tokens


def _as_batches(drawn: npt.NDArray[Any], sizes: Int64Array, lengths: Int64Array) -> Batches:
    starts = np.cumsum(sizes) - sizes
    own = lengths[drawn]
    longest = np.maximum.reduceat(own, starts)
    return Batches(drawn, starts, sizes, longest, np.add.reduceat(own, starts))
