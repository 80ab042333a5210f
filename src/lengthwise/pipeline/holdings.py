"""Which features the drafter's ranks still read, so that nobody writes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.pipeline.messages import Part

Parts = tuple["Part", ...]


class Holdings:
    """The parts that each rank was told of, step by step, until it has copied them. Pure."""

    def __init__(self) -> None:
        """Nobody reads anything."""
        self._parts: dict[tuple[int, int], dict[int, Parts]] = {}

    def add(self, epoch: int, step: int, rank: int, parts: Parts) -> None:
        """A rank is told of its part of a step."""
        self._parts.setdefault((epoch, step), {})[rank] = parts

    def copied(self, epoch: int, step: int, rank: int) -> Parts:
        """A rank has copied its part of a step; returns it, for its pages are free now."""
        held = self._parts[epoch, step]
        parts = held.pop(rank)
        if not held:
            del self._parts[epoch, step]
        return parts

    def epoch_of(self, rank: int, part: Part) -> int:
        """The epoch of a part that a rank was told of and has not copied."""
        return next(epoch for (epoch, _), held in self._parts.items() if part in held.get(rank, ()))
