"""From the options of ``lengthwise simulate`` to workloads and machines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.cost import StepTime, spread
from lengthwise.core.planner import Planner
from lengthwise.core.remix import remix
from lengthwise.simulate import (
    Band,
    Machines,
    Workload,
    simulate_band,
    workload_of_batches,
    workload_of_remix,
)
from lengthwise.simulate.builders import largest_parts

if TYPE_CHECKING:
    from lengthwise.calibrate.cost_fit import CostFit
    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.cost import CostModel
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.plan import EpochPlan
    from lengthwise.core.remix import RemixPlan
    from lengthwise.simulate.band import Factors

BATCHES_AHEAD = 2
"""Of the largest, for each target, for which the channel has room beyond what steps need: one runs,
the next is made ready."""


@dataclass(frozen=True)
class Case:
    """An epoch on machines of which the numbers of devices are still open.

    Attributes:
        lengths: of all samples; int64.
        config: how they are batched.
        costs: of the target and of a drafter device.
        bytes_per_token: of features.
        pool: batches that wait to be mixed and tokens of a step; None: the drafter learns from the
            target's batches.
        feed_seconds: to read a batch.
        channel_bytes: None: what steps need, and two batches a target on top.
        bandwidth: bytes a second of each device.
        independent: drafter devices take steps of their own.
    """

    lengths: Int64Array
    config: BatchingConfig
    costs: tuple[StepTime | CostFit, StepTime | CostFit]
    bytes_per_token: int
    pool: tuple[int, int] | None
    feed_seconds: float
    channel_bytes: int | None
    bandwidth: float
    independent: bool

    @property
    def efficiency(self) -> float:
        """Real over padded tokens of the target's batches."""
        return self._plan.stats.efficiency

    def workload(self, num_targets: int, num_drafters: int) -> Workload:  # noqa: ARG002
        """What passes through so many devices."""
        target, drafter = (_model(cost) for cost in self.costs)
        together = 1 if self.independent else num_drafters
        if self._mix is None:
            return workload_of_batches(
                self._plan.batches,
                target,
                drafter,
                bytes_per_token=self.bytes_per_token,
                batches_per_step=together,
                feed_seconds=self.feed_seconds,
            )
        return workload_of_remix(
            self._mix,
            np.asarray(self._planner.lengths),
            target,
            drafter,
            bytes_per_token=self.bytes_per_token,
            num_drafters=together,
            feed_seconds=self.feed_seconds,
        )

    def machines(self, num_targets: int, num_drafters: int) -> Machines:
        """So many devices, and the channel between them."""
        channel = self.channel_bytes
        if channel is None:
            ahead = BATCHES_AHEAD * num_targets
            channel = self.workload(num_targets, num_drafters).channel_bytes(ahead)
        return Machines(
            num_targets=num_targets,
            num_drafters=num_drafters,
            independent=self.independent,
            channel_bytes=channel,
            transfer_bytes_per_second=self.bandwidth,
        )

    def band(self, num_targets: int, num_drafters: int) -> Band:
        """Simulated, with the costs and at the ends of what they may be."""
        work = self.workload(num_targets, num_drafters)
        batches = self._plan.batches
        parts = batches.sizes, batches.padded
        if self._mix is not None:
            together = 1 if self.independent else num_drafters
            tokens = largest_parts(self._mix, np.asarray(self._planner.lengths), together)
            parts = np.ones_like(tokens), tokens
        return simulate_band(
            work,
            self.machines(num_targets, num_drafters),
            target=_factors(self.costs[0], batches.sizes, batches.padded),
            drafter=_factors(self.costs[1], *parts),
        )

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self.lengths, self.config)

    @cached_property
    def _plan(self) -> EpochPlan:
        return self._planner.plan(0)

    @cached_property
    def _mix(self) -> RemixPlan | None:
        if self.pool is None:
            return None
        num_batches, step_tokens = self.pool
        lengths = self._planner.lengths
        return remix(
            self._plan.batches,
            lengths,
            lengths,
            pool_tokens=num_batches * self.config.limits.max_tokens,
            step_cost=step_tokens,
            seed=self.config.seed,
        )


def _model(cost: StepTime | CostFit) -> CostModel:
    return cost if isinstance(cost, StepTime) else cost.cost


def _factors(cost: StepTime | CostFit, batch_size: Int64Array, longest: Int64Array) -> Factors:
    return (1.0, 1.0) if isinstance(cost, StepTime) else spread(cost, batch_size, longest)
