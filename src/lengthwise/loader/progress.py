"""How far a sampler is: the iteration that runs, and where the next one begins."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError
from lengthwise.loader.state import Position

if TYPE_CHECKING:
    from collections.abc import Iterator


class Iteration:
    """One pass over a sampler: where it began and what it has yielded.

    Attributes:
        begin: where in the run it began.
        num_replicas: replicas it was dealt to.
        num_steps: batches it yields, from its beginning to the end of the epoch.
        num_yielded: batches it has yielded so far.
    """

    __slots__ = ("begin", "num_replicas", "num_steps", "num_yielded")

    def __init__(self, begin: Position, num_replicas: int, num_steps: int) -> None:
        """Nothing is yielded yet."""
        self.begin = begin
        self.num_replicas = num_replicas
        self.num_steps = num_steps
        self.num_yielded = 0

    @property
    def stopped_early(self) -> bool:
        """Whether it has begun and not ended."""
        return 0 < self.num_yielded < self.num_steps

    def position(self, num_taken: int) -> Position:
        """Where the run stands after ``num_taken`` of its batches: at the end, a new epoch."""
        if num_taken == self.num_steps:
            return Position(self.begin.epoch + 1)
        return self.begin.after(self.num_replicas, num_taken)


class Progress:
    """The latest iteration, and from it where the next one begins.

    An iteration that came to its end is followed by the next epoch; one that stopped early by
    itself again.

    Attributes:
        iteration: the latest one, until the run is moved elsewhere.
        num_restarts: iterations that stopped early and were begun again, one after the other.
    """

    def __init__(self, begin: Position | None = None) -> None:
        """A run that stands at ``begin``; by default at its start."""
        self._begin = Position() if begin is None else begin
        self._iterator: weakref.ref[Iterator[list[int]]] | None = None
        self.iteration: Iteration | None = None
        self.num_restarts = 0

    @property
    def running(self) -> Iteration | None:
        """The iteration whose iterator is still in use."""
        in_use = self._iterator is not None and self._iterator() is not None
        return self.iteration if in_use else None

    @property
    def upcoming(self) -> Position:
        """Where the next iteration begins."""
        last = self.iteration
        if last is not None and last.num_yielded == last.num_steps:
            return Position(last.begin.epoch + 1)
        return self._begin

    @property
    def shown(self) -> Position:
        """Where the running iteration began, else where the next one begins."""
        running = self.running
        return self.upcoming if running is None else running.begin

    def follow(self, iteration: Iteration, iterator: Iterator[list[int]]) -> None:
        """From now on, this iteration tells how far the run is."""
        last = self.iteration
        self.num_restarts += int(last is not None and last.stopped_early)
        self._begin, self.iteration = iteration.begin, iteration
        self._iterator = weakref.ref(iterator)

    def move_to(self, position: Position) -> None:
        """Forget the iteration; the next one begins here."""
        self._begin, self.iteration, self._iterator = position, None, None
        self.num_restarts = 0

    def set_epoch(self, epoch: int) -> None:
        """Stay where the run is if this epoch comes next anyway, else go to its first step."""
        upcoming = self.upcoming
        self.num_restarts = 0
        if epoch != upcoming.epoch:
            self.move_to(Position(epoch))
        elif upcoming is not self._begin:
            self.move_to(upcoming)

    def position(self, consumed: int | None) -> Position:
        """Where the run stands.

        Args:
            consumed: batches of the latest iteration that count; by default all it has yielded.

        Raises:
            ConfigError: it has not yielded so many.
        """
        iteration = self.iteration
        num_yielded = 0 if iteration is None else iteration.num_yielded
        taken = num_yielded if consumed is None else require_int("consumed", consumed, least=0)
        if taken > num_yielded:
            raise ConfigError(
                f"consumed={taken:,}, but the latest iteration has yielded {num_yielded:,} batches "
                f"(consumed counts from where that iteration began, not from the epoch's start)"
            )
        return self._begin if iteration is None else iteration.position(taken)

    def __getstate__(self) -> dict[str, object]:
        """Where the run stands; an iteration itself cannot be pickled."""
        return vars(Progress(self.position(None)))
