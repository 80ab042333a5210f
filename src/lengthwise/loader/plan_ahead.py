"""The plan of an epoch, and the next one's made while this one is consumed."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.core.plan import EpochPlan
    from lengthwise.core.planner import Planner


class PlanAhead:
    """Keeps one epoch's plan, and at most one more that a background thread works out.

    A plan is a value of its epoch, so it does not matter who works it out. The thread ends with its
    plan; none is left behind. Pickles and forked processes do without it and plan when asked.

    Args:
        planner: makes the plans.
        enabled: whether to use a thread at all.
    """

    def __init__(self, planner: Planner, *, enabled: bool = True) -> None:
        """Nothing is planned yet."""
        self.planner = planner
        # A plan of fixed sizes is worked out batch by batch: there is nothing to do ahead.
        self.enabled = enabled and planner.config.batch_sizing == "greedy"
        self._plan: EpochPlan | None = None
        self._task: _Task | None = None

    def plan(self, epoch: int) -> EpochPlan:
        """The plan of ``epoch``; waits for the thread where it is at work on it.

        Raises:
            PlanError: as :meth:`Planner.plan`, also where the thread met the error.
        """
        if self._plan is None or self._plan.epoch != epoch:
            task, self._task = self._task, None
            self._plan = None
            ready = task.result() if task is not None and task.epoch == epoch else None
            self._plan = self.planner.plan(epoch) if ready is None else ready
        return self._plan

    def start(self, epoch: int) -> None:
        """Begin to work out ``epoch`` in the background, unless that has been done."""
        if self.enabled and (self._task is None or self._task.epoch != epoch):
            self.join()
            self._task = _Task(self.planner, epoch)

    def join(self) -> None:
        """Wait until no thread is at work; what it found is kept."""
        if self._task is not None:
            self._task.thread.join()

    def __getstate__(self) -> dict[str, object]:
        """Without plans, which are made again from their epoch's number."""
        return {**self.__dict__, "_plan": None, "_task": None}


class _Task:
    """One plan in the making."""

    def __init__(self, planner: Planner, epoch: int) -> None:
        self.epoch = epoch
        self.process = os.getpid()
        self.plan: EpochPlan | None = None
        self.error: Exception | None = None
        self.thread = threading.Thread(
            target=self._run, args=(planner,), name=f"lengthwise-plan-{epoch}"
        )
        self.thread.start()

    def _run(self, planner: Planner) -> None:
        try:
            self.plan = planner.plan(self.epoch)
        except Exception as error:  # noqa: BLE001 - handed to whoever asks for the plan
            self.error = error

    def result(self) -> EpochPlan | None:
        """The plan; ``None`` in a process that was forked off meanwhile."""
        if self.process != os.getpid():
            return self.plan
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.plan
