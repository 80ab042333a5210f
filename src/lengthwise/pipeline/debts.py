"""Which children owe an answer, and how long they have been silent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lengthwise.pipeline.crew import Child


class Debts:
    """Counts answers owed. A child that owes nothing may be silent for as long as it likes.

    Args:
        timeout_seconds: silence after which a child that owes an answer is taken for hung.
        clock: seconds, rising.
    """

    def __init__(self, timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody owes anything."""
        self._timeout = timeout_seconds
        self._clock = clock
        self._owed: dict[Child, int] = {}
        self._heard: dict[Child, float] = {}

    def owe(self, child: Child) -> None:
        """An answer is due; silence counts from now unless one was due before."""
        if not self._owed.get(child):
            self._heard[child] = self._clock()
        self._owed[child] = self._owed.get(child, 0) + 1

    def heard(self, child: Child) -> None:
        """It has said something; silence counts anew."""
        self._heard[child] = self._clock()

    def answered(self, child: Child) -> None:
        """It has given one of its answers."""
        self._owed[child] = max(0, self._owed.get(child, 0) - 1)

    def forgive(self, child: Child) -> None:
        """It owes nothing any more."""
        self._owed[child] = 0

    def owes(self, child: Child) -> bool:
        """Whether an answer is due."""
        return bool(self._owed.get(child))

    def overdue(self, children: Iterable[Child]) -> list[tuple[Child, float]]:
        """Those that have been silent too long, each with the seconds."""
        now = self._clock()
        silent = [(child, now - self._heard[child]) for child in children if self._owed.get(child)]
        return [(child, seconds) for child, seconds in silent if seconds > self._timeout]
