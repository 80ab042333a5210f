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


Owners = dict["Part", int | None]
"""Missing parts, each with the rank that waits for it; None: no rank has been told of it yet."""


class Repairs:
    """Keeps which samples of which batches are missing. Pure.

    A batch runs as a whole, as it did before, so that its features are the same to the last bit;
    only those that are missing are kept.
    """

    def __init__(self) -> None:
        """Nothing is missing."""
        self._waiting: dict[Key, tuple[RunBatch, Owners]] = {}
        self._running: dict[Key, tuple[RunBatch, Owners]] = {}
        self._done: list[tuple[int, Again]] = []

    def __bool__(self) -> bool:
        """Whether anything is to be run again."""
        return bool(self._waiting or self._running or self._done)

    def add(self, batch: RunBatch, owner: int | None) -> bool:
        """Parts of a batch are missing; whether that batch was not to be run already."""
        key = batch.epoch, batch.arrival
        new = key not in self._waiting
        _, owners = self._waiting.setdefault(key, (batch, {}))
        owners.update(dict.fromkeys(batch.parts, owner))
        return new

    def next(self, running: Container[Key]) -> RunBatch | None:
        """A batch to run, with all parts that are missing of it; none that runs already."""
        for key, (batch, owners) in self._waiting.items():
            if key not in running:
                self._running[key] = self._waiting.pop(key)
                return replace(batch, parts=tuple(owners))
        return None

    def lost(self, key: Key) -> bool:
        """Whoever ran a batch is lost; whether it was one of these, which then runs again."""
        if key not in self._running:
            return False
        batch, owners = self._running.pop(key)
        _, more = self._waiting.setdefault(key, (batch, {}))
        more.update(owners)
        return True

    def arrived(self, key: Key) -> list[Part] | None:
        """A batch has been run.

        Returns:
            None where it was none of these; otherwise those of its parts that no rank has been told
            of. Ranks that wait for others are told by :meth:`done`.
        """
        if key not in self._running:
            return None
        _, owners = self._running.pop(key)
        for rank in sorted({owner for owner in owners.values() if owner is not None}):
            parts = tuple(part for part, owner in owners.items() if owner == rank)
            self._done.append((rank, Again(parts)))
        return [part for part, owner in owners.items() if owner is None]

    def done(self) -> Iterator[tuple[int, Again]]:
        """What ranks are to be told now; each once."""
        while self._done:
            yield self._done.pop(0)
