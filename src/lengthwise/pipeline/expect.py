"""What a pipeline can expect: an epoch simulated with what its own devices were timed at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.dflash.training.expect import (
    Expectation,
    fit_stages,
    spread,
    stage_seconds,
    tokens_left,
)
from lengthwise.pipeline.dispatch import RANK_DEPTH, WORKER_DEPTH
from lengthwise.simulate import Machines, Workload, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.calibrate import CostFit, Measurement
    from lengthwise.core.batches import Batches
    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.training.plan import Epoch
    from lengthwise.pipeline.setup import PipelineSetup


def expect(
    setup: PipelineSetup,
    num_done: int,
    target_timings: Sequence[Measurement],
    drafter_timings: Sequence[Measurement],
) -> Expectation | None:
    """Simulate the epoch at hand, which stands for all that is left.

    Args:
        setup: of the pipeline.
        num_done: optimiser steps done before.
        target_timings: of batches, of all target workers.
        drafter_timings: of optimiser steps, of all drafter ranks.

    Returns:
        None where there is nothing left to do, or too few shapes were timed.
    """
    fits = fit_stages(target_timings, drafter_timings)
    num_tokens = tokens_left(setup.plan, num_done)
    if fits is None or not num_tokens:
        return None
    epoch = setup.plan.epoch(num_done // setup.plan.steps_per_epoch)
    work = workload(setup, epoch, *fits)
    machines = machines_of(setup)
    found = simulate(work, machines)
    bounds = spread(epoch, *fits)
    low, high = (
        simulate(work.scaled(target=bounds[0][side], drafter=bounds[1][side]), machines).seconds
        for side in (0, 1)
    )
    scale = num_tokens / work.num_tokens
    return Expectation(
        num_tokens=num_tokens,
        seconds=found.seconds * scale,
        low_seconds=low * scale,
        high_seconds=high * scale,
        target=fits[0],
        drafter=fits[1],
        num_targets=machines.num_targets,
        num_drafters=machines.num_drafters,
        target_busy=found.target_busy,
        drafter_busy=found.drafter_busy,
        bottleneck=None if found.bottleneck is None else found.bottleneck.kind,
        channel_bytes=setup.arena.num_bytes,
        bytes_per_token=_token_bytes(setup),
    )


def machines_of(setup: PipelineSetup) -> Machines:
    """The pipeline's devices and its arena."""
    section = setup.config.pipeline
    return Machines(
        num_targets=len(section.target_devices),
        num_drafters=len(section.drafter_devices),
        channel_bytes=setup.arena.num_bytes,
        prefetch_batches=WORKER_DEPTH,
        step_depth=RANK_DEPTH,
    )


def workload(setup: PipelineSetup, epoch: Epoch, target: CostFit, drafter: CostFit) -> Workload:
    """An epoch as the simulation takes it; memory is counted in whole pages, as the arena does."""
    mix, arena = epoch.mix, setup.arena
    pages = -(-setup.plan.data.lengths // arena.page_tokens)
    page_bytes = arena.page_tokens * _token_bytes(setup)
    arrival_seconds, step_seconds = stage_seconds(epoch, target, drafter)
    arrival_of = np.empty(pages.size, np.int64)
    members, edges = mix.arrivals.gather(np.arange(len(mix.arrivals)))
    arrival_of[members] = np.repeat(np.arange(len(mix.arrivals)), np.diff(edges))
    return Workload(
        arrival_seconds=arrival_seconds,
        arrival_bytes=_sums(mix.arrivals, pages) * page_bytes,
        arrival_tokens=mix.arrivals.tokens.astype(np.int64),
        step_seconds=step_seconds,
        step_ready=np.maximum.reduceat(arrival_of[mix.steps.order], mix.steps.starts),
        step_bytes=_sums(mix.steps, pages) * page_bytes,
    )


def _sums(batches: Batches, values: Int64Array) -> Int64Array:
    """The sum of the samples' values in every batch; int64."""
    members, edges = batches.gather(np.arange(len(batches)))
    return np.add.reduceat(values[members], edges[:-1])


def _token_bytes(setup: PipelineSetup) -> int:
    return setup.arena.feature_size * setup.arena.dtype.itemsize
