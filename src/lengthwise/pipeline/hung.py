"""Who hangs, of those that have been silent too long; a rank that waits for another does not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lengthwise.pipeline.messages import Ping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lengthwise.pipeline.crew import Child
    from lengthwise.pipeline.debts import Debts
    from lengthwise.pipeline.messages import Waits

ANSWER_SECONDS = 10.0
"""For a rank to say whether it waits: a thread that has little else to do answers."""


class Hung:
    """Tells ranks that hang from those that wait for them.

    In a step ranks wait for each other, so where one hangs all are silent. A silent rank is asked;
    one that does not answer, or does not wait for others, hangs. Where all that owe something wait,
    they cannot reach each other, and all of them are named.

    Args:
        debts: says who has been silent too long.
        clock: seconds, rising.
    """

    def __init__(self, debts: Debts, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody has been asked."""
        self._debts = debts
        self._clock = clock
        self._asked: dict[Child, float] = {}
        self._waits: dict[Child, bool] = {}

    def told(self, rank: Child, message: Waits) -> None:
        """A rank says whether it waits for others; it may be silent for that, and still is."""
        self._waits[rank] = message.for_ranks

    def found(self, workers: Iterable[Child], ranks: Iterable[Child]) -> list[tuple[Child, float]]:
        """Those that hang, each with the seconds of its silence; asks ranks that are silent."""
        ranks = [rank for rank in ranks if not rank.gone]
        silent = dict(self._debts.overdue(ranks))
        self._asked = {rank: moment for rank, moment in self._asked.items() if rank in silent}
        for rank in silent:
            self._ask(rank)
        waiting = [rank for rank in silent if self._waits.get(rank)]
        if any(rank.silent_seconds is not None for rank in ranks):
            hung = []  # one was killed, and is waited for until its end is heard
        elif all(rank in waiting for rank in ranks if self._debts.owes(rank)):
            hung = waiting
        else:
            hung = [rank for rank in silent if self._is_hung(rank)]
        return [*self._debts.overdue(workers), *((rank, silent[rank]) for rank in hung)]

    def _ask(self, rank: Child) -> None:
        """Again while it waits; a rank that is not ready has nobody to answer yet."""
        now = self._clock()
        last = self._asked.get(rank)
        due = last is None or (rank in self._waits and now - last > ANSWER_SECONDS)
        if rank.ready and due:
            self._asked[rank] = now
            self._waits.pop(rank, None)
            rank.send(Ping())

    def _is_hung(self, rank: Child) -> bool:
        """Whether it says that it waits for nobody, or does not say so in time."""
        if rank in self._waits:
            return not self._waits[rank]
        asked = self._asked.get(rank)
        return asked is None or self._clock() - asked > ANSWER_SECONDS
