"""Those who run a pipeline, as its coordinator sees them, whatever started them.

On one machine they are processes with a socket each (``local``), on a cluster they are actors of
Ray (``on_ray``). The coordinator, and all that it decides by, is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from lengthwise.calibrate import Measurement
    from lengthwise.pipeline.dispatch import Dispatcher


class Child(Protocol):
    """A target worker or a drafter rank.

    Attributes:
        name: such as "target worker 0 (cuda:0)".
        number: its place among its kind.
        host: the machine it runs on, where there may be several; None on one machine.
        ready: whether it has said that it waits for work.
        timings: that it measured before.
        silent_seconds: for which it had not answered when it was killed for that; None otherwise.
        gone: whether it has ended.
    """

    name: str
    number: int
    host: str | None
    ready: bool
    timings: tuple[Measurement, ...]
    silent_seconds: float | None
    gone: bool

    def send(self, message: object) -> None:
        """Send a message, without waiting; to a child that is gone, never."""

    def kill(self) -> None:
        """End it at once, whatever it does; that it is gone is heard later."""

    def ending(self) -> str:
        """How it ended, in words."""


class Crew(Protocol):
    """All children of a run.

    Attributes:
        listen_seconds: in which, after a rank's error, it may still be heard that another was lost.
    """

    listen_seconds: float

    @property
    def workers(self) -> Sequence[Child]:
        """Target workers, as they were started."""

    @property
    def ranks(self) -> Sequence[Child]:
        """Drafter ranks, as they were started."""

    def messages(self, children: Iterable[Child], seconds: float) -> Iterator[tuple[Child, Any]]:
        """What children say within some time: (child, message), and (child, None) at its end.

        What a child said before its end is heard first. Returns when everything that is there has
        been yielded. No child can keep it waiting.
        """

    def all_ready(self) -> None:
        """All have said that they are ready; called once, before the first work."""

    def end(self, *, at_once: bool) -> None:
        """End all; none is left afterwards.

        Args:
            at_once: kill them; otherwise they have been told to leave, and are killed if they do
                not.
        """


@dataclass(frozen=True, slots=True)
class Fresh:
    """Ranks that were started again.

    Attributes:
        ranks: all of them.
        dispatcher: stands where they go on; it has no workers yet.
        words: where that is and how often it was done, for a warning.
    """

    ranks: Sequence[Child]
    dispatcher: Dispatcher
    words: str


class Reserve(Protocol):
    """Starts children while a run goes on, for an engine that can."""

    def replace(self, worker: Child) -> Child | None:
        """A worker in place of one that was lost; None where none may be replaced any more."""

    def add(self) -> Child:
        """Another worker."""

    def wanted_targets(self) -> int | None:
        """How many target workers there are to be, where that has changed; None otherwise."""

    def lost_features(self) -> Container[tuple[int, ...]]:
        """Pages of features that are lost with the machines they waited on."""

    def restart(self) -> Fresh | None:
        """All ranks anew, from the newest checkpoint; None where that may not be done any more.

        Batches that workers have are not heard of any more.
        """
