"""The target workers of a run: who is there, who evaluates, who takes a lost one's place."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lengthwise.errors import LengthwiseWarning
from lengthwise.pipeline.evaluations import Evaluations
from lengthwise.pipeline.messages import Leave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.pipeline.crew import Child, Reserve
    from lengthwise.pipeline.debts import Debts
    from lengthwise.pipeline.dispatch import Dispatcher
    from lengthwise.pipeline.messages import Evaluate, Evaluated


class Targets:
    """The pool of target workers.

    Args:
        workers: as they were started.
        debts: keeps what they owe.
        reserve: starts others; None where the engine cannot.
    """

    def __init__(self, workers: Sequence[Child], debts: Debts, reserve: Reserve | None) -> None:
        """Nobody has work."""
        self._of = {worker.number: worker for worker in workers}
        self._debts = debts
        self._reserve = reserve
        self._leaving: set[Child] = set()
        self._evaluations = Evaluations()

    def __contains__(self, child: Child) -> bool:
        """Whether a child is one of the workers, and was not replaced."""
        return self._of.get(child.number) is child

    @property
    def evaluating(self) -> bool:
        """Whether an evaluation is on its way."""
        return bool(self._evaluations)

    @property
    def present(self) -> list[Child]:
        """Those that have not ended."""
        return [worker for worker in self._of.values() if not worker.gone]

    @property
    def _staying(self) -> list[Child]:
        return [worker for worker in self.present if worker not in self._leaving]

    def ask(self, number: int, message: object) -> None:
        """Send a worker something that it will answer."""
        worker = self._of[number]
        self._debts.owe(worker)
        worker.send(message)

    def evaluate(self, request: Evaluate) -> None:
        """Have the first worker decode held-out prompts."""
        able = sorted(self._staying, key=lambda worker: not worker.ready)
        if not able:
            step = request.position.num_steps
            _warn(f"the evaluation after step {step:,} is left out: no target worker is left")
            return
        self._evaluations.begin(able[0], request)
        self.ask(able[0].number, request)

    def evaluated(self, message: Evaluated) -> None:
        """One has been made."""
        self._evaluations.done(message.request)

    def lost(self, worker: Child, dispatcher: Dispatcher, *, needed: bool) -> tuple[int, str]:
        """A worker has ended; another takes its place, or the others its work.

        Args:
            worker: that has ended.
            dispatcher: gives its batches to others.
            needed: whether there is, or may be, work for it.

        Returns:
            How many batches are run again, and what that means for the run: "", or, where nobody
            is left, why it fails.
        """
        count = dispatcher.lost(worker.number)
        evaluations = self._evaluations.lost(worker)
        if worker in self._leaving:
            self._leaving.discard(worker)
            return 0, ""
        fresh = self._reserve.replace(worker) if self._reserve is not None and needed else None
        ending = f"{worker.name} {worker.ending()}"
        if fresh is not None:
            self._of[fresh.number] = fresh
            self._debts.owe(fresh)  # that it gets ready
            batches = f", and its {count} batches are run again" if count else ""
            _warn(f"{ending}; another one takes its place{batches}")
        elif needed and not self._staying:
            return count, f"{ending}, and no other target worker is left"
        else:
            _warn(ending + (f"; its {count} batches are run by the others" if count else ""))
        for request in evaluations:
            self.evaluate(request)
        return count, ""

    def scale(self, dispatcher: Dispatcher) -> None:
        """Add or send away workers, where the user asks for that; a worker finishes its work."""
        wanted = self._reserve.wanted_targets() if self._reserve is not None else None
        if wanted is not None and self._reserve is not None:
            staying = self._staying
            for worker in staying[wanted:]:
                self._leaving.add(worker)
                dispatcher.retire(worker.number)
            for _ in range(wanted - len(staying)):
                worker = self._reserve.add()
                self._of[worker.number] = worker
        for worker in [one for one in self._leaving if not one.gone]:
            self._send_away(worker)

    def _send_away(self, worker: Child) -> None:
        """Have a worker leave as soon as it has nothing to do; one that has no place yet, now."""
        if self._debts.owes(worker):
            return
        if worker.ready:
            worker.ready = False
            worker.send(Leave())
        elif worker.host is None:
            worker.kill()

    def forget_batches(self) -> None:
        """What workers run is not heard of any more; evaluations are."""
        for worker in self.present:
            self._debts.forgive(worker)
            starting = not worker.ready and worker not in self._leaving
            for _ in range(self._evaluations.num_of(worker) + starting):
                self._debts.owe(worker)

    def join(self, dispatcher: Dispatcher) -> None:
        """Give all that are ready, and stay, to a dispatcher."""
        for worker in self._staying:
            if worker.ready:
                dispatcher.joined(worker.number)


def _warn(text: str) -> None:
    warnings.warn(text, LengthwiseWarning, stacklevel=2)
