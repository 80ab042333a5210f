"""The coordinator: hears what children say, tells them what to do next, ends them when it is over.

One thread, no model, no lock. It waits on the pipes and on the ends of its children at once, so
that a child that dies is noticed in the same place as one that answers.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import warnings
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.dflash.training.loop import Observer
from lengthwise.errors import LengthwiseWarning, TrainingError
from lengthwise.pipeline.children import messages
from lengthwise.pipeline.flow import Account, Flow
from lengthwise.pipeline.messages import (
    Arrived,
    Copied,
    Evaluate,
    Evaluated,
    Failed,
    Finished,
    Learnt,
    Leave,
    Ready,
    RunBatch,
    Told,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.training.loop import Outcome
    from lengthwise.pipeline.children import Child
    from lengthwise.pipeline.dispatch import Dispatcher
    from lengthwise.pipeline.pages import PageAllocator

POLL_SECONDS = 0.1
FLOW_SECONDS = 1.0
TRACE_LINES = 12


class PipelineObserver(Observer, Protocol):
    """Is told what happens in a pipeline."""

    def flowed(self, flow: Flow) -> None:
        """How things flow; about once a second."""


class Coordinator:
    """Runs a pipeline to its end.

    Args:
        dispatcher: decides who does what.
        allocator: of the arena.
        workers: target workers.
        ranks: drafter ranks.
        observer: is told.
        timeout_seconds: after which a child that owes an answer is taken for hung.
        max_bad_samples: that may be left out before the run ends.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        allocator: PageAllocator,
        workers: list[Child],
        ranks: list[Child],
        observer: PipelineObserver,
        *,
        timeout_seconds: float,
        max_bad_samples: int,
    ) -> None:
        """Nothing has been sent."""
        self._dispatcher = dispatcher
        self._pages = allocator
        self._workers = workers
        self._ranks = ranks
        self._observer = observer
        self._timeout = timeout_seconds
        self._max_bad = max_bad_samples
        self._outcomes: dict[int, Outcome] = {}
        self._failure: TrainingError | None = None
        self._stopping = False
        self._evaluations: list[tuple[int, Evaluate]] = []
        self._owed: dict[str, int] = {}
        self._began: float | None = None
        self._flow_due = 0.0
        self.flow = Flow(
            num_pages=allocator.num_pages,
            workers={child.name: Account() for child in workers},
            ranks={child.name: Account() for child in ranks},
        )

    def run(self, stop_wanted: Callable[[], bool]) -> Outcome:
        """Until all ranks have finished.

        Args:
            stop_wanted: asked all the time; True ends the run before the next step.

        Raises:
            TrainingError: a child failed; the message names it and the cause. Where the ranks are
                well they have saved a checkpoint before.
        """
        for child in self._children:
            self._owe(child)  # that it gets ready
        while len(self._outcomes) < len(self._ranks) or self._evaluations:
            for child, message in messages(self._children, POLL_SECONDS):
                self._hear(child, message)
            if stop_wanted() and not self._stopping:
                self._stop()
            if all(child.ready for child in self._ranks):
                self._send_work()
            self._check_hung()
            self._report()
        self._leave()
        if self._failure is not None:
            raise self._failure
        return self._outcomes[0]

    @property
    def _children(self) -> list[Child]:
        return [child for child in (*self._workers, *self._ranks) if not child.gone]

    def _send_work(self) -> None:
        if self._began is None:
            self._began = time.monotonic()
        for number, message in self._dispatcher.work():
            kind = self._workers if isinstance(message, RunBatch) else self._ranks
            self._send(kind[number], message)

    def _send(self, child: Child, message: object) -> None:
        self._owe(child)
        with contextlib.suppress(OSError):  # it is gone, which `messages` tells next
            child.wire.send(message)

    def _hear(self, child: Child, message: Any) -> None:
        """React to one message; None says that the child is gone."""
        child.owes_since = time.monotonic()
        if message is None:
            self._lost(child)
        elif isinstance(message, Failed):
            self._failed(child, message)
        elif isinstance(message, Ready):
            child.ready = True
            self._answered(child)
        elif isinstance(message, Told):
            getattr(self._observer, message.method)(*message.arguments)
        elif isinstance(message, Evaluate):
            self._ask_evaluation(message)
        elif child in self._workers:
            self._hear_worker(child, message)
        else:
            self._hear_rank(child, message)

    def _hear_worker(self, child: Child, message: Arrived | Evaluated) -> None:
        self._answered(child)
        if isinstance(message, Evaluated):
            self._evaluations = [one for one in self._evaluations if one[1] != message.request]
            shutil.rmtree(message.request.folder, ignore_errors=True)
            position = message.request.position
            self._observer.evaluated(position, message.evaluation, message.sums)
            return
        self.flow.workers[child.name].add(message.busy_seconds, message.wait_seconds)
        self.flow.num_batches += 1
        self.flow.real_tokens += message.real_tokens
        self.flow.padded_tokens += message.padded_tokens
        self._dispatcher.arrived(message)
        for sample, why in message.bad.items():
            self._bad_sample(sample, why)

    def _hear_rank(self, child: Child, message: Copied | Learnt | Finished) -> None:
        if isinstance(message, Copied):
            self._dispatcher.copied(child.number, message.epoch, message.step)
        elif isinstance(message, Learnt):
            self._answered(child)
            self.flow.ranks[child.name].add(message.busy_seconds, message.wait_seconds)
            self._dispatcher.learnt(child.number)
        else:
            self._outcomes[child.number] = message.outcome
            self._owed[child.name] = 0

    def _ask_evaluation(self, request: Evaluate) -> None:
        alive = [worker for worker in self._workers if not worker.gone]
        if alive:
            self._evaluations.append((alive[0].number, request))
            self._send(alive[0], request)

    def _bad_sample(self, sample: int, why: str) -> None:
        self.flow.num_bad += 1
        warnings.warn(f"left out: {why}", LengthwiseWarning, stacklevel=2)
        if self.flow.num_bad > self._max_bad and self._failure is None:
            self._fail(
                f"{self.flow.num_bad:,} samples turned out bad, more than "
                f"pipeline.max_bad_samples={self._max_bad:,}; the last: sample {sample}: {why}"
            )

    def _lost(self, child: Child) -> None:
        """A process has ended without being asked to."""
        if child in self._ranks:
            if child.number not in self._outcomes:
                raise self._failure or TrainingError(
                    f"{child.name} {child.ending()}; the run can go on from its last checkpoint"
                )
            return
        count = self._dispatcher.lost(child.number)
        mine = [request for number, request in self._evaluations if number == child.number]
        self._evaluations = [one for one in self._evaluations if one[0] != child.number]
        if self._failure is not None or len(self._outcomes) == len(self._ranks):
            return
        if not self._dispatcher.num_workers:
            self._fail(f"{child.name} {child.ending()}, and no other target worker is left")
            return
        self.flow.num_reruns += count
        warnings.warn(
            f"{child.name} {child.ending()}; its {count} batches are run by the others",
            LengthwiseWarning,
            stacklevel=2,
        )
        for request in mine:
            self._ask_evaluation(request)

    def _failed(self, child: Child, message: Failed) -> None:
        """A process has raised: what it met, others would meet too."""
        trace = "\n".join(message.trace.strip().splitlines()[-TRACE_LINES:])
        text = f"{child.name} failed: {message.error}\n{trace}"
        if child in self._ranks:
            raise TrainingError(text)
        self._fail(text)

    def _fail(self, text: str) -> None:
        """Let the ranks end in good order, with a checkpoint; then the run fails."""
        self._failure = self._failure or TrainingError(text)
        if not all(child.ready for child in self._ranks):
            raise self._failure
        self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for rank, message in self._dispatcher.stop():
            self._send(self._ranks[rank], message)

    def _leave(self) -> None:
        for child in self._children:
            self._send(child, Leave())

    def _owe(self, child: Child) -> None:
        """An answer is due: the clock starts, unless it runs for an earlier one."""
        if not self._owed.get(child.name):
            child.owes_since = time.monotonic()
        self._owed[child.name] = self._owed.get(child.name, 0) + 1

    def _answered(self, child: Child) -> None:
        self._owed[child.name] = max(0, self._owed.get(child.name, 0) - 1)

    def _check_hung(self) -> None:
        now = time.monotonic()
        for child in self._children:
            since = child.owes_since
            if self._owed.get(child.name) and since is not None and now - since > self._timeout:
                warnings.warn(
                    f"{child.name} has not answered for {now - since:,.0f} seconds "
                    f"(pipeline.timeout_seconds); it is killed",
                    LengthwiseWarning,
                    stacklevel=2,
                )
                child.owes_since = now
                child.process.kill()

    def _report(self) -> None:
        now = time.monotonic()
        if self._began is None or now < self._flow_due:
            return
        self._flow_due = now + FLOW_SECONDS
        flow = self.flow
        flow.seconds = now - self._began
        flow.prefetch = self._dispatcher.num_prefetched
        flow.prefetch_room = self._dispatcher.num_workers * 2
        flow.hidden_states = self._dispatcher.num_ready_steps
        flow.pages_used = self._pages.num_used
        self._observer.flowed(flow)
