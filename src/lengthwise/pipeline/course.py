"""An epoch in progress: which step each sample belongs to, and what each step waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lengthwise.dflash.training.plan import Epoch
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
