"""An epoch in progress: which step each sample belongs to, and what each step waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.dflash.training.plan import Epoch, TrainingPlan
    from lengthwise.pipeline.messages import Part


@dataclass
class Step:
    """A step whose samples are on their way.

    Attributes:
        missing: samples that have not arrived.
        parts: those that have, by sample id.
        bad: samples that never will.
    """

    missing: int
    parts: dict[int, Part] = field(default_factory=dict)
    bad: set[int] = field(default_factory=set)


class EpochState:
    """An epoch in progress.

    Args:
        epoch: of the plan.
        num_steps: that the run makes of it.
    """

    def __init__(self, epoch: Epoch, num_steps: int) -> None:
        """Nothing has arrived."""
        self.epoch = epoch
        self.num_steps = num_steps
        samples = [epoch.step(step) for step in range(num_steps)]
        sizes = [one.size for one in samples]
        flat = np.concatenate(samples)
        # By sample id; -1 for samples of steps that the run does not come to.
        self.step_of = np.full(int(flat.max()) + 1, -1, np.int64)
        self.step_of[flat] = np.repeat(np.arange(num_steps), sizes)
        self.steps = [Step(size) for size in sizes]
        self.num_arrivals = epoch.arrivals_by(num_steps - 1)

    def step(self, sample_id: int) -> int:
        """The step that takes a sample; -1 for none."""
        return int(self.step_of[sample_id]) if sample_id < self.step_of.size else -1


class Upcoming(NamedTuple):
    """A batch that is to be run.

    Attributes:
        epoch: counted from 0.
        arrival: its number in the epoch.
        wanted: samples to keep of it, where it is run again after a resumption; None: all.
    """

    epoch: int
    arrival: int
    wanted: set[int] | None


def batches_after(
    num_done: int, plan: TrainingPlan, state_of: Callable[[int], EpochState]
) -> Iterator[Upcoming]:
    """All batches to run when ``num_done`` optimiser steps are done, in order.

    First come those of which any sample waited then: they run again, whole.

    Args:
        num_done: optimiser steps.
        plan: of the run.
        state_of: an epoch's, by its number.
    """
    first, step = divmod(num_done, plan.steps_per_epoch)
    last = -(-plan.num_steps // plan.steps_per_epoch)
    for number in range(first, last):
        state = state_of(number)
        begin = 0
        if number == first and step:
            begin = state.epoch.arrivals_by(step - 1)
            waiting = set(state.epoch.waiting(step).tolist())
            for arrival in range(begin):
                wanted = waiting.intersection(state.epoch.arrival(arrival).tolist())
                if wanted:
                    yield Upcoming(number, arrival, wanted)
        for arrival in range(begin, state.num_arrivals):
            yield Upcoming(number, arrival, None)
