"""The coordinator: hears what children say, tells them what to do next, ends them when it is over.

One thread, no model, no lock. That a child dies is noticed in the same place as what it says.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from lengthwise.errors import LengthwiseWarning, TrainingError
from lengthwise.pipeline.debts import Debts
from lengthwise.pipeline.flow import Flow
from lengthwise.pipeline.hung import Hung
from lengthwise.pipeline.messages import (
    Again,
    Arrived,
    Asked,
    Copied,
    Evaluate,
    Evaluated,
    Failed,
    Finished,
    Learnt,
    Leave,
    Missing,
    Noted,
    Placed,
    Ready,
    RunBatch,
    Told,
    Waits,
    Warned,
)
from lengthwise.pipeline.meter import Meter
from lengthwise.pipeline.targets import Targets
from lengthwise.pipeline.verdict import cause_of, conclude, find_cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.training.progress import Outcome
    from lengthwise.pipeline.crew import Child, Crew, Reserve
    from lengthwise.pipeline.dispatch import Dispatcher
    from lengthwise.pipeline.flow import PipelineObserver

POLL_SECONDS = 0.1


class Coordinator:
    """Runs a pipeline to its end.

    Args:
        dispatcher: decides who does what.
        crew: the children.
        observer: is told.
        timeout_seconds: after which a child that owes an answer is taken for hung.
        max_bad_samples: that may be left out before the run ends.
        when_ready: called when all children wait for work.
        reserve: starts children in place of lost ones; None where the engine cannot.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        crew: Crew,
        observer: PipelineObserver,
        *,
        timeout_seconds: float,
        max_bad_samples: int,
        when_ready: Callable[[], None] = lambda: None,
        reserve: Reserve | None = None,
    ) -> None:
        """Nothing has been sent."""
        self._dispatcher, self._crew = dispatcher, crew
        self._debts = Debts(timeout_seconds)
        self._hung = Hung(self._debts)
        self._targets = Targets(crew.workers, self._debts, reserve)
        self._ranks = list(crew.ranks)
        self._reserve = reserve
        self._observer = observer
        self._max_bad = max_bad_samples
        self._when_ready = when_ready
        self._outcomes: dict[int, Outcome] = {}
        self._failure: str | None = None
        self._stopping = False
        self.flow = Flow.of(crew, dispatcher.pages.num_pages)
        self._meter = Meter(self.flow, observer)

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
            for child, message in self._crew.messages(self._children, POLL_SECONDS):
                if child in self._targets or child in self._ranks:
                    self._hear(child, message)
            if stop_wanted():
                if not self._meter.began:
                    return None
                self._stop()
            self._send_work()
            self._kill_the_hung()
            self._meter.report(self._dispatcher)
        self._meter.report(self._dispatcher, at_once=True)  # the last word comes when all is done
        for child in self._children:
            child.send(Leave())
        return conclude(self._outcomes[0], self._failure)

    @property
    def _children(self) -> list[Child]:
        return [*self._targets.present, *(rank for rank in self._ranks if not rank.gone)]

    @property
    def _over(self) -> bool:
        finished = len(self._outcomes) == len(self._ranks)
        return finished and (not self._targets.evaluating or self._failure is not None)

    def _send_work(self) -> None:
        """Tell everyone what to do; once the run has begun only ranks are waited for."""
        waited_for = self._ranks if self._meter.began else self._children
        if not all(child.ready for child in waited_for if not child.gone):
            return
        if not self._meter.began:
            self._when_ready()
            self._meter.begin()
        self._targets.scale(self._dispatcher)
        for number, message in self._dispatcher.work():
            if isinstance(message, RunBatch):
                self._targets.ask(number, message)
            elif isinstance(message, Again):  # is part of what is owed already
                self._ranks[number].send(message)
            else:
                self._send(self._ranks[number], message)
        assert not self._dispatcher.stands_still, "the arena is as large as the plan needs"

    def _send(self, rank: Child, message: object) -> None:
        self._debts.owe(rank)
        rank.send(message)

    def _hear(self, child: Child, message: Any) -> None:
        """React to one message; None says that the child is gone."""
        if isinstance(message, Waits):
            self._hung.told(child, message)
            return
        self._debts.heard(child)
        if message is None:
            self._lost(child)
        elif isinstance(message, Failed):
            self._failed(child, message)
        elif isinstance(message, Placed):
            if not child.ready and not self._debts.owes(child):
                self._debts.owe(child)  # that it gets ready; until now the cluster had no room
        elif isinstance(message, Ready):
            self._ready(child, message)
        elif isinstance(message, Warned):
            warnings.warn(message.text, LengthwiseWarning, stacklevel=2)
        elif child in self._targets:
            self._hear_worker(child, message)
        else:
            self._hear_rank(child, message)

    def _ready(self, child: Child, message: Ready) -> None:
        child.ready, child.timings = True, message.timings
        self._debts.answered(child)
        self.flow.joined(child)
        self._targets.join(self._dispatcher)

    def _hear_worker(self, child: Child, message: Arrived | Evaluated) -> None:
        self._debts.answered(child)
        if isinstance(message, Evaluated):
            self._targets.evaluated(message)
            self._observer.evaluated(message.request.position, message.evaluation, message.sums)
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
            child.send(Noted())
        elif isinstance(message, Evaluate):
            self._targets.evaluate(message)
        elif isinstance(message, Missing):
            self._meter.num_lost_batches += self._dispatcher.missing(child.number, message.parts)
            self._find_lost_features()
        else:
            assert isinstance(message, Finished)
            self._outcomes[child.number] = message.outcome
            self._debts.forgive(child)

    def _hear_last(self, rank: Child, message: Any) -> None:
        """What a rank says while another is lost: its records are still taken down."""
        if isinstance(message, (Told, Asked)):
            self._hear_rank(rank, message)

    def _bad_sample(self, why: str) -> None:
        self.flow.num_bad += 1
        warnings.warn(f"left out: {why}", LengthwiseWarning, stacklevel=2)
        if self.flow.num_bad > self._max_bad:
            self._fail(
                f"{self.flow.num_bad:,} samples turned out bad, more than "
                f"pipeline.max_bad_samples={self._max_bad:,}; the last: {why}"
            )

    def _lost(self, child: Child) -> None:
        """A child has ended without being asked to."""
        if child in self._targets:
            self._lost_worker(child)
        elif child.number not in self._outcomes:
            self._give_up(child, None)

    def _lost_worker(self, child: Child) -> None:
        if self._failure is not None:
            self._dispatcher.lost(child.number)
            return
        # Where nothing is left to run, or the run stops, all that ranks still need is there.
        needed = self._dispatcher.batches_left and not self._stopping
        count, failure = self._targets.lost(child, self._dispatcher, needed=needed)
        if failure:
            self._fail(failure)
        else:
            self._meter.num_lost_batches += count
            self._find_lost_features()

    def _find_lost_features(self) -> None:
        """Where a machine is lost, run again at once what waited there for a later step."""
        if self._reserve is not None and not self._stopping:
            lost = self._reserve.lost_features()
            self._meter.num_lost_batches += self._dispatcher.lost_features(lost)

    def _failed(self, child: Child, message: Failed) -> None:
        """A child has raised: what it met, others would meet too."""
        if child in self._ranks:
            self._give_up(child, message)
        else:
            self._fail(cause_of(child, message).text)

    def _give_up(self, rank: Child, message: Failed | None) -> None:
        """A rank is lost, and with it the step that all ranks were at."""
        others = [one for one in self._ranks if one is not rank]
        cause = find_cause(cause_of(rank, message), others, self._crew, self._hear_last)
        if cause.raised or self._failure or self._stopping or not self._restart(cause.text):
            text = f"{cause.text}\nthe last checkpoint stands as it was"
            raise TrainingError(self._failure or text)

    def _restart(self, why: str) -> bool:
        """All ranks go on from the newest checkpoint; False where that cannot be done."""
        fresh = self._reserve.restart() if self._reserve and self._meter.began else None
        if fresh is None:
            return False
        warnings.warn(f"{why}; {fresh.words}", LengthwiseWarning, stacklevel=2)
        self._meter.num_lost_batches += self._dispatcher.num_rerun
        self._dispatcher, self._ranks, self._outcomes = fresh.dispatcher, list(fresh.ranks), {}
        self._targets.forget_batches()
        self._targets.join(self._dispatcher)
        for child in self._ranks:
            self._debts.owe(child)
        return True

    def _fail(self, text: str) -> None:
        """Let the ranks end in good order, with a checkpoint; then the run fails."""
        self._failure = self._failure or text
        if not self._meter.began:
            raise TrainingError(self._failure)
        self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for rank, message in self._dispatcher.stop():
            self._send(self._ranks[rank], message)

    def _kill_the_hung(self) -> None:
        for child, seconds in self._hung.found(self._targets.present, self._ranks):
            child.silent_seconds = seconds
            child.kill()
            self._debts.forgive(child)
