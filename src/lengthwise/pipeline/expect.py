"""What a pipeline can expect: an epoch simulated with what its own devices were timed at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.core.cost import spread
from lengthwise.dflash.training.expect import (
    LEVEL,
    Expectation,
    fit_stages,
    stages_of,
    tokens_left,
)
from lengthwise.pipeline.dispatch import RANK_DEPTH, WORKER_DEPTH
from lengthwise.simulate import Machines, simulate_band, workload_of_remix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.calibrate import CostFit, Measurement
    from lengthwise.dflash.training.plan import Epoch
    from lengthwise.pipeline.setup import PipelineSetup
    from lengthwise.simulate import Workload


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
    work, machines = workload(setup, epoch, *fits), machines_of(setup)
    target, drafter = (spread(*stage, LEVEL) for stage in stages_of(epoch, fits))
    band = simulate_band(work, machines, target=target, drafter=drafter)
    found = band.middle
    scale = num_tokens / work.num_tokens
    return Expectation(
        num_tokens=num_tokens,
        seconds=found.seconds * scale,
        low_seconds=band.fast.seconds * scale,
        high_seconds=band.slow.seconds * scale,
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
        num_targets=len(section.targets),
        num_drafters=len(section.drafters),
        channel_bytes=setup.arena.num_bytes,
        prefetch_batches=WORKER_DEPTH,
        step_depth=RANK_DEPTH,
    )


def workload(setup: PipelineSetup, epoch: Epoch, target: CostFit, drafter: CostFit) -> Workload:
    """An epoch as the simulation takes it; the drafter's cost is of all its devices together."""
    return workload_of_remix(
        epoch.mix,
        setup.plan.data.lengths,
        target.cost,
        drafter.cost,
        bytes_per_token=_token_bytes(setup),
        page_tokens=setup.arena.page_tokens,
    )


def _token_bytes(setup: PipelineSetup) -> int:
    return setup.arena.feature_size * setup.arena.dtype.itemsize
