"""What a training loop says of its progress, and to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.update import StepResult


class Observer(Protocol):
    """Is told what happens; shows it or writes it down."""

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """An optimiser step was made."""

    def evaluated(self, position: Position, evaluation: Evaluation, sums: DraftSums) -> None:
        """Held-out prompts were decoded, and the loss of their answers measured."""

    def saved(self, position: Position, path: Location) -> None:
        """A checkpoint is in place."""


class Evaluator(Protocol):
    """Finds out how good the drafter is at the moment, and tells the observer."""

    def evaluate(self, position: Position, observer: Observer, *, compare: bool) -> None:
        """Decode held-out prompts and measure the loss of their answers, now or in good time.

        Args:
            position: the moment.
            observer: to be told.
            compare: decode without the drafter too, for speed-up and mismatches.
        """


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands.

    Attributes:
        num_steps: optimiser steps done, over all epochs.
        epoch: the epoch of the next step.
        step: that step's number in it.
    """

    num_steps: int
    epoch: int
    step: int

    @classmethod
    def after(cls, num_steps: int, steps_per_epoch: int) -> Position:
        """The position when ``num_steps`` are done."""
        epoch, step = divmod(num_steps, steps_per_epoch)
        return cls(num_steps, epoch, step)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step took.

    Attributes:
        num_samples: in it, over all ranks.
        real_tokens: of these.
        wait_seconds: until its samples were there.
        learn_seconds: to learn from them.
        num_batches: of the target, that the step had to wait for by the plan and the step before it
            had not.
        target_tokens: real ones of these batches.
        padded_tokens: the same with padding.
        token_squares: sum over them of padded tokens times the longest sample.
    """

    num_samples: int
    real_tokens: int
    wait_seconds: float
    learn_seconds: float
    num_batches: int = 0
    target_tokens: int = 0
    padded_tokens: int = 0
    token_squares: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        position: where.
        interrupted: a signal ended it; its state is saved.
        checkpoint: the last one.
    """

    position: Position
    interrupted: bool
    checkpoint: Location | None
