"""Batches that are run again because features were lost on their way to a rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lengthwise.pipeline.messages import Again

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from lengthwise.pipeline.messages import Part, RunBatch

Key = tuple[int, int]
"""Epoch and number of a batch in it."""


class Repairs:
    """Keeps which rank waits for which sample of which batch. Pure.

    A batch runs as a whole, as it did before, so that its features are the same to the last bit;
    only those that are missing are kept.
    """

    def __init__(self) -> None:
        """Nothing is missing."""
        self._waiting: dict[Key, tuple[RunBatch, dict[Part, int]]] = {}
        self._running: dict[Key, tuple[RunBatch, dict[Part, int]]] = {}
        self._done: list[tuple[int, Again]] = []

    def __bool__(self) -> bool:
        """Whether any rank waits."""
        return bool(self._waiting or self._running or self._done)

    def add(self, batch: RunBatch, rank: int) -> bool:
        """A rank misses the parts of a batch; whether that batch was not to be run already."""
        key = batch.epoch, batch.arrival
        new = key not in self._waiting
        _, ranks = self._waiting.setdefault(key, (batch, {}))
        ranks.update(dict.fromkeys(batch.parts, rank))
        return new

    def next(self, running: Container[Key]) -> RunBatch | None:
        """A batch to run, with all parts that are missing of it; none that runs already."""
        for key, (batch, ranks) in self._waiting.items():
            if key not in running:
                self._running[key] = self._waiting.pop(key)
                return replace(batch, parts=tuple(ranks))
        return None

    def lost(self, key: Key) -> bool:
        """Whoever ran a batch is lost; whether it was one of these, which then runs again."""
        if key not in self._running:
            return False
        batch, ranks = self._running.pop(key)
        _, more = self._waiting.setdefault(key, (batch, {}))
        more.update(ranks)
        return True

    def arrived(self, key: Key) -> bool:
        """A batch has been run; whether it was one of these."""
        if key not in self._running:
            return False
        _, ranks = self._running.pop(key)
        for rank in sorted(set(ranks.values())):
            parts = tuple(part for part, owner in ranks.items() if owner == rank)
            self._done.append((rank, Again(parts)))
        return True

    def done(self) -> Iterator[tuple[int, Again]]:
        """What ranks are to be told now; each once."""
        while self._done:
            yield self._done.pop(0)
