"""The coordinator: hears what children say, tells them what to do next, ends them when it is over.

One thread, no model, no lock. That a child dies is noticed in the same place as what it says.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from lengthwise.errors import LengthwiseWarning, TrainingError
from lengthwise.pipeline.children import messages
from lengthwise.pipeline.debts import Debts
from lengthwise.pipeline.evaluations import Evaluations
from lengthwise.pipeline.flow import Account, Flow
from lengthwise.pipeline.messages import (
    Arrived,
    Asked,
    Copied,
    Evaluate,
    Evaluated,
    Failed,
    Finished,
    Learnt,
    Leave,
    Noted,
    Ready,
    RunBatch,
    Told,
    Warned,
)
from lengthwise.pipeline.verdict import cause_of, find_cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.training.progress import Outcome
    from lengthwise.pipeline.children import Child
    from lengthwise.pipeline.dispatch import Dispatcher
    from lengthwise.pipeline.flow import PipelineObserver
    from lengthwise.pipeline.pages import PageAllocator

POLL_SECONDS = 0.1
FLOW_SECONDS = 1.0


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
        when_ready: called when all children wait for work.
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
        when_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing has been sent."""
        self._dispatcher = dispatcher
        self._pages = allocator
        self._workers = workers
        self._ranks = ranks
        self._observer = observer
        self._debts = Debts(timeout_seconds)
        self._max_bad = max_bad_samples
        self._when_ready = when_ready
        self._outcomes: dict[int, Outcome] = {}
        self._failure: str | None = None
        self._stopping = False
        self._evaluations = Evaluations()
        self._num_lost_batches = 0
        self._began: float | None = None
        self._flow_due = 0.0
        self.flow = Flow(
            num_pages=allocator.num_pages,
            workers={child.name: Account() for child in workers},
            ranks={child.name: Account() for child in ranks},
        )

    def run(self, stop_wanted: Callable[[], bool]) -> Outcome | None:
        """Until all ranks have finished.

        Args:
            stop_wanted: asked all the time; True ends the run before the next step.

        Returns:
            The first rank's outcome; None where the run was stopped before anything had begun.

        Raises:
            TrainingError: a child failed; the message names it and the cause. Where the ranks are
                well they have saved a checkpoint before.
        """
        for child in self._children:
            self._debts.owe(child)  # that it gets ready
        while not self._over:
            for child, message in messages(self._children, POLL_SECONDS):
                self._hear(child, message)
            if stop_wanted():
                if self._began is None:
                    return None
                self._stop()
            if all(child.ready for child in self._children):
                self._send_work()
            self._kill_the_hung()
            self._report()
        self._flow_due = 0.0  # the last word comes when all is done
        self._report()
        for child in self._children:
            child.line.send(Leave())
        return self._end()

    @property
    def _children(self) -> list[Child]:
        return [child for child in (*self._workers, *self._ranks) if not child.gone]

    @property
    def _over(self) -> bool:
        finished = len(self._outcomes) == len(self._ranks)
        return finished and (not self._evaluations or self._failure is not None)

    def _end(self) -> Outcome:
        outcome = self._outcomes[0]
        if self._failure is not None:
            place = "nothing was learnt yet"
            if outcome.checkpoint is not None:
                place = f"step {outcome.position.num_steps:,} is saved in {outcome.checkpoint}"
            raise TrainingError(f"{self._failure}\n{place}")
        return outcome

    def _send_work(self) -> None:
        if self._began is None:
            self._when_ready()
            self._began = time.monotonic()
        for number, message in self._dispatcher.work():
            kind = self._workers if isinstance(message, RunBatch) else self._ranks
            self._send(kind[number], message)
        assert not self._dispatcher.stands_still, "the arena is as large as the plan needs"

    def _send(self, child: Child, message: object) -> None:
        self._debts.owe(child)
        child.line.send(message)

    def _hear(self, child: Child, message: Any) -> None:
        """React to one message; None says that the child is gone."""
        self._debts.heard(child)
        if message is None:
            self._lost(child)
        elif isinstance(message, Failed):
            self._failed(child, message)
        elif isinstance(message, Ready):
            child.ready, child.timings = True, message.timings
            self._debts.answered(child)
        elif isinstance(message, Warned):
            warnings.warn(message.text, LengthwiseWarning, stacklevel=2)
        elif child in self._workers:
            self._hear_worker(child, message)
        else:
            self._hear_rank(child, message)

    def _hear_worker(self, child: Child, message: Arrived | Evaluated) -> None:
        self._debts.answered(child)
        if isinstance(message, Evaluated):
            self._evaluations.done(message.request)
            position = message.request.position
            self._observer.evaluated(position, message.evaluation, message.sums)
            return
        self.flow.ran(child.name, message)
        self._dispatcher.arrived(message)
        for why in message.bad.values():
            self._bad_sample(why)

    def _hear_rank(self, child: Child, message: Any) -> None:
        if isinstance(message, Copied):
            self._dispatcher.copied(child.number, message.epoch, message.step)
        elif isinstance(message, Learnt):
            self._debts.answered(child)
            self.flow.learnt(child.name, message)
            self._dispatcher.learnt(child.number)
        elif isinstance(message, Told):
            getattr(self._observer, message.method)(*message.arguments)
        elif isinstance(message, Asked):
            child.line.send(Noted())
        elif isinstance(message, Evaluate):
            self._ask_evaluation(message)
        else:
            assert isinstance(message, Finished)
            self._outcomes[child.number] = message.outcome
            self._debts.forgive(child)

    def _hear_last(self, rank: Child, message: Any) -> None:
        """What a rank says while another is lost: its records are still taken down."""
        if isinstance(message, (Told, Asked)):
            self._hear_rank(rank, message)

    def _ask_evaluation(self, request: Evaluate) -> None:
        alive = [worker for worker in self._workers if not worker.gone]
        if not alive:
            step = request.position.num_steps
            text = f"the evaluation after step {step:,} is left out: no target worker is left"
            warnings.warn(text, LengthwiseWarning, stacklevel=2)
            return
        self._evaluations.begin(alive[0], request)
        self._send(alive[0], request)

    def _bad_sample(self, why: str) -> None:
        self.flow.num_bad += 1
        warnings.warn(f"left out: {why}", LengthwiseWarning, stacklevel=2)
        if self.flow.num_bad > self._max_bad:
            self._fail(
                f"{self.flow.num_bad:,} samples turned out bad, more than "
                f"pipeline.max_bad_samples={self._max_bad:,}; the last: {why}"
            )

    def _lost(self, child: Child) -> None:
        """A process has ended without being asked to."""
        if child in self._workers:
            self._lost_worker(child)
        elif child.number not in self._outcomes:
            self._give_up(child, None)

    def _lost_worker(self, child: Child) -> None:
        count = self._dispatcher.lost(child.number)
        evaluations = self._evaluations.lost(child)
        if self._failure is not None:
            return
        ending = f"{child.name} {child.ending()}"
        # Where nothing is left to run, or the run stops, all that ranks still need is there.
        needed = self._dispatcher.batches_left and not self._stopping
        if needed and not self._dispatcher.num_workers:
            self._fail(f"{ending}, and no other target worker is left")
            return
        self._num_lost_batches += count
        rest = f"; its {count} batches are run by the others" if count else ""
        warnings.warn(ending + rest, LengthwiseWarning, stacklevel=2)
        for request in evaluations:
            self._ask_evaluation(request)

    def _failed(self, child: Child, message: Failed) -> None:
        """A process has raised: what it met, others would meet too."""
        if child in self._ranks:
            self._give_up(child, message)
        self._fail(cause_of(child, message).text)

    def _give_up(self, rank: Child, message: Failed | None) -> NoReturn:
        """A rank is lost, and with it the step that all ranks were at."""
        others = [one for one in self._ranks if one is not rank]
        cause = find_cause(cause_of(rank, message), others, self._hear_last)
        raise TrainingError(self._failure or f"{cause}\nthe last checkpoint stands as it was")

    def _fail(self, text: str) -> None:
        """Let the ranks end in good order, with a checkpoint; then the run fails."""
        self._failure = self._failure or text
        if self._began is None:
            raise TrainingError(self._failure)
        self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for rank, message in self._dispatcher.stop():
            self._send(self._ranks[rank], message)

    def _kill_the_hung(self) -> None:
        for child, seconds in self._debts.overdue(self._children):
            child.silent_seconds = seconds
            child.process.kill()
            self._debts.forgive(child)

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
        flow.num_reruns = self._num_lost_batches + self._dispatcher.num_rerun
        self._observer.flowed(flow)
