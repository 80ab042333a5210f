"""What flows through a pipeline, counted: depths, tokens, who worked and who waited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from lengthwise.dflash.training.progress import Observer

if TYPE_CHECKING:
    from lengthwise.dflash.training.expect import Expectation
    from lengthwise.pipeline.crew import Child, Crew
    from lengthwise.pipeline.messages import Arrived, Learnt


@dataclass
class Account:
    """Seconds of one process.

    Attributes:
        busy_seconds: at work.
        wait_seconds: without work.
        input_seconds: of them, in which it had been given work and its samples were being read (a
            target worker) or copied (a rank).
        meeting_seconds: of those at work, in which a rank waited for the others and gradients were
            summed.
        padded_tokens: that a target worker has run.
        host: the machine that the process runs on, where there may be several.
    """

    busy_seconds: float = 0.0
    wait_seconds: float = 0.0
    input_seconds: float = 0.0
    meeting_seconds: float = 0.0
    padded_tokens: int = 0
    host: str | None = None

    def add(self, busy: float, wait: float, input_seconds: float = 0.0) -> None:
        """Another piece of work, and the time before it."""
        self.busy_seconds += busy
        self.wait_seconds += wait
        self.input_seconds += input_seconds

    @property
    def busy_share(self) -> float | None:
        """Share of the time at work; None before the first piece."""
        both = self.busy_seconds + self.wait_seconds
        return self.busy_seconds / both if both else None


@dataclass
class Flow:
    """Counts since the run began, and how full things are now.

    Attributes:
        seconds: since the first work was given out.
        prefetch: batches that target workers have and have not finished.
        prefetch_room: the most they can have.
        hidden_states: steps whose features are complete and that no rank has yet.
        pages_used: of the arena.
        num_pages: of the arena.
        real_tokens: that targets have run.
        padded_tokens: the same with padding.
        token_squares: sum over their batches of padded tokens times the longest sample: what
            attention goes by.
        num_batches: that targets have run.
        num_reruns: of them, batches run again after a loss or a resumption.
        num_bad: samples that were left out.
        workers: account of each target worker, by name.
        ranks: account of each drafter rank, by name.
    """

    seconds: float = 0.0
    prefetch: int = 0
    prefetch_room: int = 0
    hidden_states: int = 0
    pages_used: int = 0
    num_pages: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    token_squares: int = 0
    num_batches: int = 0
    num_reruns: int = 0
    num_bad: int = 0
    workers: dict[str, Account] = field(default_factory=dict)
    ranks: dict[str, Account] = field(default_factory=dict)

    @classmethod
    def of(cls, crew: Crew, num_pages: int) -> Self:
        """Nothing has flowed yet; every child that was started has an account."""
        return cls(
            num_pages=num_pages,
            workers={child.name: Account() for child in crew.workers},
            ranks={child.name: Account() for child in crew.ranks},
        )

    def joined(self, child: Child) -> None:
        """A child is ready; it may be a worker that came later."""
        accounts = self.ranks if child.name in self.ranks else self.workers
        accounts.setdefault(child.name, Account()).host = child.host

    def ran(self, worker: str, batch: Arrived) -> None:
        """A target worker has run a batch."""
        # A process may wait for rows while its device is still at work.
        late = min(batch.input_seconds, batch.wait_seconds)
        self.workers[worker].add(batch.busy_seconds, batch.wait_seconds, late)
        self.workers[worker].padded_tokens += batch.padded_tokens
        self.num_batches += 1
        self.real_tokens += batch.real_tokens
        self.padded_tokens += batch.padded_tokens
        self.token_squares += batch.padded_tokens * batch.longest

    def learnt(self, rank: str, step: Learnt) -> None:
        """A rank has learnt from its part of a step."""
        self.ranks[rank].add(step.busy_seconds, step.wait_seconds, step.input_seconds)
        self.ranks[rank].meeting_seconds += step.meeting_seconds


class PipelineObserver(Observer, Protocol):
    """Is told what happens in a pipeline."""

    def expected(self, expectation: Expectation) -> None:
        """What the run can expect; before its first step."""

    def flowed(self, flow: Flow) -> None:
        """How things flow; about once a second."""
