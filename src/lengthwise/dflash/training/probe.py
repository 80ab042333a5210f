"""A few shapes of the plan, timed before the run, so that it can say what to expect.

The target runs batches of the plan's sizes, the drafter learns from a few of the plan's steps; both
do it as they will later. Nothing of it stays: the drafter that learns is a copy.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.calibrate import Shape, measure_shapes, stopwatch_for
from lengthwise.calibrate.fit import LEAST_SHAPES
from lengthwise.dflash.batch import Sample
from lengthwise.dflash.target import samples_of
from lengthwise.dflash.training.learner import Learner
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.calibrate import Measurement
    from lengthwise.core.batches import Batches
    from lengthwise.dflash.drafter import Drafter
    from lengthwise.dflash.target.ends import FrozenEnds
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.plan import TrainingPlan
    from lengthwise.dflash.training.setup import Setup

NUM_SHAPES = 6
NUM_STEPS = 5


def batch_shapes(batches: Batches, count: int = NUM_SHAPES) -> list[Shape]:
    """Shapes of a plan that tell its others: evenly spread over what batches cost, ends included.

    Args:
        batches: of one epoch.
        count: at most so many.
    """
    tokens = batches.sizes.astype(np.int64) * batches.padded
    order = np.lexsort((tokens, batches.padded))
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(np.int64)
    chosen = {int(order[place]) for place in places} | {int(tokens.argmin()), int(tokens.argmax())}
    return sorted({Shape(int(batches.sizes[i]), int(batches.padded[i])) for i in chosen})


def probe_setup(setup: Setup) -> tuple[tuple[Measurement, ...], tuple[Measurement, ...]]:
    """Time the target and the drafter of a run of one process, in turn."""
    target, layers = setup.target, setup.drafter.config.target_layer_ids

    def run(rows: list[list[int]]) -> None:
        masks = [[True] * len(row) for row in rows]
        samples_of(target, rows, masks, range(len(rows)), layers)

    shapes = batch_shapes(setup.plan.epoch(0).mix.arrivals)
    timings = probe_target(shapes, run, setup.device, setup.config.pipeline.probe_rounds)
    ends, dtype = target.ends, target.dtype
    return timings, probe_drafter(setup.plan, setup.config, setup.drafter, ends, dtype)


def probe_target(
    shapes: Sequence[Shape],
    run: Callable[[list[list[int]]], object],
    device: torch.device,
    rounds: int,
) -> tuple[Measurement, ...]:
    """Time the target on batches.

    Args:
        shapes: of the plan, by :func:`batch_shapes`.
        run: does with the token ids of a batch's samples all that the run does with a batch.
        device: the target's.
        rounds: 0 measures nothing.
    """

    def prepare(shape: Shape) -> Callable[[], object]:
        rows = [[0] * shape.longest] * shape.batch_size
        return lambda: run(rows)

    return _measure(shapes, prepare, device, rounds)


def probe_drafter(
    plan: TrainingPlan,
    config: TrainConfig,
    drafter: Drafter,
    ends: FrozenEnds,
    dtype: torch.dtype,
    rank: tuple[int, int] = (0, 1),
) -> tuple[Measurement, ...]:
    """Time optimiser steps of a copy of the drafter; all ranks call it at once.

    Args:
        plan: of the run.
        config: of the run.
        drafter: on its device; is left as it is.
        ends: the target's.
        dtype: of features.
        rank: this process among those that train, and their number.

    Returns:
        Steps as batches of one: ``longest`` is the tokens of the whole step, over all ranks.
    """
    rounds = config.pipeline.probe_rounds
    if not rounds:
        return ()
    epoch = plan.epoch(0)
    order = np.argsort(epoch.mix.steps.tokens, kind="stable")
    places = np.linspace(0, len(order) - 1, min(NUM_STEPS, len(order))).round().astype(np.int64)
    steps = {int(epoch.mix.steps.tokens[step]): int(step) for step in order[places]}
    learner = Learner(
        copy.deepcopy(drafter),
        ends,
        config,
        total_steps=plan.num_steps,
        boundaries=plan.data.length_boundaries(),
    )
    width = drafter.config.feature_size

    def prepare(shape: Shape) -> Callable[[], object]:
        mine = epoch.for_ranks(steps[shape.longest], rank[1])[rank[0]]
        samples = [_made_up(plan, int(sample), width, dtype, drafter.device) for sample in mine]
        return lambda: learner.learn(samples, 0)

    return _measure([Shape(1, tokens) for tokens in steps], prepare, drafter.device, rounds)


def _measure(
    shapes: Sequence[Shape],
    prepare: Callable[[Shape], Callable[[], object]],
    device: torch.device,
    rounds: int,
) -> tuple[Measurement, ...]:
    """Time every shape so many times, after once for nothing; all ranks in the same order.

    Nothing is measured where nothing could be fitted to it, or on devices without a stopwatch.
    """
    if not rounds or len(shapes) < LEAST_SHAPES or device.type not in {"cpu", "cuda"}:
        return ()
    jobs = {shape: prepare(shape) for shape in shapes}
    return measure_shapes(
        lambda *shape: jobs[Shape(*shape)],
        shapes,
        stopwatch=stopwatch_for(str(device)),
        repeats=rounds,
        warmups=1,
        max_seconds=math.inf,
    )


def _made_up(
    plan: TrainingPlan, sample: int, width: int, dtype: torch.dtype, device: torch.device
) -> Sample:
    """A sample with the data set's mask; tokens and features are of no meaning.

    Its own tokens may be bad, which is for the run itself to find, and to go on without it.
    """
    try:
        mask = plan.data.dataset[sample]["loss_mask"]
    except DataError:
        length = int(plan.data.lengths[np.searchsorted(plan.data.sample_ids, sample)])
        mask = torch.ones(length, dtype=torch.bool)
    generator = torch.Generator().manual_seed(sample)
    features = torch.randn(len(mask), width, generator=generator).to(device, dtype)
    return Sample(sample, torch.zeros(len(mask), dtype=torch.int64), mask, features)
