"""Evaluations that target workers have been asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.dflash.training.places import remove_folder

if TYPE_CHECKING:
    from lengthwise.pipeline.crew import Child
    from lengthwise.pipeline.messages import Evaluate


class Evaluations:
    """Keeps who does which, so that none is lost with its worker."""

    def __init__(self) -> None:
        """Nobody evaluates."""
        self._of: list[tuple[Child, Evaluate]] = []

    def __bool__(self) -> bool:
        """Whether any is on its way."""
        return bool(self._of)

    def begin(self, child: Child, request: Evaluate) -> None:
        """A worker has been asked."""
        self._of.append((child, request))

    def done(self, request: Evaluate) -> None:
        """One has been answered: its snapshot of the drafter is not needed any more."""
        self._of = [one for one in self._of if one[1] != request]
        remove_folder(request.folder)

    def num_of(self, child: Child) -> int:
        """How many a worker has been asked for."""
        return sum(worker is child for worker, _ in self._of)

    def lost(self, child: Child) -> list[Evaluate]:
        """A worker is gone; what it was asked is to be asked again."""
        mine = [request for worker, request in self._of if worker is child]
        self._of = [one for one in self._of if one[0] is not child]
        return mine
