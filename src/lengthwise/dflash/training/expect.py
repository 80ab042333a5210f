"""What a run can expect, from a few timings taken before it: throughput, time, how sure that is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise._version import __version__
from lengthwise.calibrate import Measurement, fit_cost
from lengthwise.core.cost import spread
from lengthwise.dflash.training.run_files import (
    PREDICTION_FILE,
    PREDICTION_FORMAT,
    PREDICTION_VERSION,
)
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.calibrate import CostFit
    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.training.plan import Epoch, TrainingPlan

LEVEL = 0.9
"""Probability that the true time lies in the interval, as far as timings can tell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expectation:
    """Throughput and time of what is left of a run.

    Attributes:
        num_tokens: real tokens that are still to be learnt from, over all epochs.
        seconds: until then, without loading, evaluations and checkpoints.
        low_seconds: with probability 0.9 it takes no less,
        high_seconds: and no more than this; both as far as the timings can tell.
        target: seconds of a batch of the target.
        drafter: seconds of an optimiser step, as a batch of one with all its tokens.
        num_targets: devices that run the target.
        num_drafters: devices that train; 0 where one device does both.
        target_busy: share of the time that targets are expected at work.
        drafter_busy: the same of the drafter's devices.
        bottleneck: what the others wait for, as ``pipeline.bottleneck`` names it.
        channel_bytes: of memory between targets and drafter.
        bytes_per_token: of the features in it.
    """

    num_tokens: int
    seconds: float
    low_seconds: float
    high_seconds: float
    target: CostFit
    drafter: CostFit
    num_targets: int = 1
    num_drafters: int = 0
    target_busy: float
    drafter_busy: float
    bottleneck: str | None = None
    channel_bytes: int | None = None
    bytes_per_token: int | None = None

    @property
    def tokens_per_second(self) -> float:
        """Real tokens learnt from in a second."""
        return self.num_tokens / self.seconds

    @property
    def low(self) -> float:
        """Tokens a second with ``high_seconds``."""
        return self.num_tokens / self.high_seconds

    @property
    def high(self) -> float:
        """Tokens a second with ``low_seconds``."""
        return self.num_tokens / self.low_seconds

    def to_dict(self) -> dict[str, Any]:
        """For the file; costs as :meth:`CostFit.to_dict` has them."""
        return {
            "format": PREDICTION_FORMAT,
            "version": PREDICTION_VERSION,
            "lengthwise": __version__,
            "tokens_per_second": self.tokens_per_second,
            "low": self.low,
            "high": self.high,
            "level": LEVEL,
            "seconds": self.seconds,
            "num_tokens": self.num_tokens,
            "num_targets": self.num_targets,
            "num_drafters": self.num_drafters,
            "target_busy": self.target_busy,
            "drafter_busy": self.drafter_busy,
            "bottleneck": self.bottleneck,
            "channel_bytes": self.channel_bytes,
            "bytes_per_token": self.bytes_per_token,
            "target": self.target.to_dict(),
            "drafter": self.drafter.to_dict(),
        }

    def write(self, output_dir: str | Path) -> Path:
        """Leave it in a run's directory, for ``lengthwise diagnose`` to compare with."""
        path = Path(output_dir) / PREDICTION_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return path


def fit_stages(
    target: Sequence[Measurement], drafter: Sequence[Measurement]
) -> tuple[CostFit, CostFit] | None:
    """What both stages take; None where too few shapes were timed to tell."""
    if not target or not drafter:
        return None
    try:
        return fit_cost(target), fit_cost(drafter)
    except ConfigError:
        return None


def stages_of(
    epoch: Epoch, fits: tuple[CostFit, CostFit]
) -> tuple[tuple[CostFit, Int64Array, Int64Array], ...]:
    """Of target and drafter: its cost, and what it runs in an epoch as (batch sizes, longest).

    A step is a batch of one sample, of all its tokens.
    """
    arrivals, steps = epoch.mix.arrivals, epoch.mix.steps
    return (
        (fits[0], arrivals.sizes, arrivals.padded),
        (fits[1], np.ones(len(steps), np.int64), steps.tokens),
    )


def expect_alone(
    plan: TrainingPlan,
    num_done: int,
    target_timings: Sequence[Measurement],
    drafter_timings: Sequence[Measurement],
) -> Expectation | None:
    """For a run of one process, which runs the target and the drafter in turn.

    The epoch at hand stands for all: they differ in composition, not in size.

    Args:
        plan: of the run.
        num_done: optimiser steps done before.
        target_timings: of batches of the target.
        drafter_timings: of optimiser steps.

    Returns:
        None where there is nothing left to do, or too few shapes were timed.
    """
    fits = fit_stages(target_timings, drafter_timings)
    num_tokens = tokens_left(plan, num_done)
    if fits is None or not num_tokens:
        return None
    epoch = plan.epoch(num_done // plan.steps_per_epoch)
    stages = stages_of(epoch, fits)
    times = [float(fit.seconds(sizes, longest).sum()) for fit, sizes, longest in stages]
    bounds = [spread(*stage, LEVEL) for stage in stages]
    scale = num_tokens / plan.data.num_tokens
    low, high = (
        sum(time * bound[side] for time, bound in zip(times, bounds, strict=True)) * scale
        for side in (0, 1)
    )
    return Expectation(
        num_tokens=num_tokens,
        seconds=sum(times) * scale,
        low_seconds=low,
        high_seconds=high,
        target=fits[0],
        drafter=fits[1],
        target_busy=times[0] / sum(times),
        drafter_busy=times[1] / sum(times),
    )


def tokens_left(plan: TrainingPlan, num_done: int) -> int:
    """Real tokens of the steps after the first ``num_done``."""
    return plan.tokens_until(plan.num_steps) - plan.tokens_until(num_done)
