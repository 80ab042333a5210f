"""Everything that coordinator and children of a pipeline say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.calibrate import Measurement
    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.progress import Outcome, Position


@dataclass(frozen=True, slots=True)
class Part:
    """One sample's features and where they lie.

    Attributes:
        sample_id: which sample.
        num_tokens: T, rows of its features.
        pages: of the arena, in order; ``ceil(T / page_tokens)`` of them.
    """

    sample_id: int
    num_tokens: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunBatch:
    """To a target worker: run one batch of the plan.

    Attributes:
        epoch: counted from 0.
        arrival: number of the batch in its epoch.
        sample_ids: all of the batch, in order; they run together.
        parts: where to write whose features; a sample without a part is not wanted.
    """

    epoch: int
    arrival: int
    sample_ids: tuple[int, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Arrived:
    """From a target worker: a batch is done.

    Attributes:
        epoch: of the batch.
        arrival: its number.
        bad: sample id -> what was wrong with it; its pages hold nothing of use.
        real_tokens: that the target ran.
        padded_tokens: the same with padding.
        busy_seconds: of the target.
        wait_seconds: without work before.
        input_seconds: of them, in which the batch had been given out and its rows were being read.
        longest: tokens that each sample was padded to.
    """

    epoch: int
    arrival: int
    bad: dict[int, str]
    real_tokens: int
    padded_tokens: int
    busy_seconds: float
    wait_seconds: float
    input_seconds: float = 0.0
    longest: int = 0


@dataclass(frozen=True, slots=True)
class Deliver:
    """To a drafter rank: its part of a step.

    Attributes:
        epoch: counted from 0.
        step: number of the step in its epoch.
        parts: what it learns from; may be empty.
    """

    epoch: int
    step: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Copied:
    """From a drafter rank: it has copied a step's features; their pages are free."""

    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class Missing:
    """From a drafter rank: features it was told of are lost, with the machine they waited on.

    Attributes:
        parts: whose.
    """

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """To a drafter rank: features that were missing are there.

    Attributes:
        parts: as they were delivered.
    """

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Learnt:
    """From a drafter rank: a step is done.

    Attributes:
        wait_seconds: until its samples were there.
        busy_seconds: to learn from them.
        input_seconds: of the wait, in which they had arrived and were being copied.
        meeting_seconds: of the work, in which other ranks were waited for, and gradients summed.
    """

    wait_seconds: float
    busy_seconds: float
    input_seconds: float = 0.0
    meeting_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """To a drafter rank: end before this step, with the state saved."""

    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class Failed:
    """From any child: it cannot go on.

    Attributes:
        error: in one line.
        trace: where it happened; empty for errors of lengthwise's own.
        moment: when, on a clock that all processes of the run share.
    """

    error: str
    trace: str
    moment: float


@dataclass(frozen=True, slots=True)
class Warned:
    """From any child: something to show.

    Attributes:
        text: of the warning.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """From a drafter rank: something for the observer.

    Attributes:
        method: of the observer.
        arguments: for it; tensors on the CPU.
    """

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """From a drafter rank: has all that it told been taken down?"""


@dataclass(frozen=True, slots=True)
class Noted:
    """To a drafter rank: all that it told before it asked has been taken down."""


@dataclass(frozen=True, slots=True)
class Ping:
    """To a drafter rank that has been silent for long: does it wait for other ranks?"""


@dataclass(frozen=True, slots=True)
class Waits:
    """From a drafter rank: whether it waits for other ranks at this moment.

    Attributes:
        for_ranks: whether it does.
    """

    for_ranks: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """Of any child, where there are several machines: it has begun on one of them.

    Attributes:
        host: the machine.
    """

    host: str


@dataclass(frozen=True, slots=True)
class Ready:
    """From any child: models are loaded, it waits for work.

    Attributes:
        timings: of a few shapes of the plan, for a forecast; empty for none.
    """

    timings: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """From a drafter rank: its loop has ended.

    Attributes:
        outcome: the loop's.
    """

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Evaluate:
    """From the first rank, passed on to a target worker: decode held-out prompts.

    Attributes:
        position: of the run when the drafter was written.
        folder: holds it, in the native format.
        compare: decode without it too.
    """

    position: Position
    folder: str
    compare: bool


@dataclass(frozen=True, slots=True)
class Evaluated:
    """From a target worker: what came of it.

    Attributes:
        request: that was answered.
        evaluation: of decoding.
        sums: loss and accuracy of held-out answers.
    """

    request: Evaluate
    evaluation: Evaluation
    sums: DraftSums


@dataclass(frozen=True, slots=True)
class Leave:
    """To any child: there is no more work."""
