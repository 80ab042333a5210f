"""An actor, as the coordinator sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.cluster.connect import require_ray
from lengthwise.pipeline.messages import (
    Again,
    Arrived,
    Copied,
    Deliver,
    Evaluate,
    Failed,
    Placed,
    RunBatch,
)
from lengthwise.pipeline.on_ray.actor import Ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lengthwise.calibrate import Measurement
    from lengthwise.pipeline.messages import Part
    from lengthwise.pipeline.on_ray.actor import Whereabouts
    from lengthwise.pipeline.on_ray.features import Pages

GRACE_SECONDS = 10.0
"""For an actor that was killed, until it is taken for dead whatever Ray says."""

Shelf = dict["Pages", tuple[Any, "str | None"]]
"""Of all features that wait, by their pages: the reference, without which they are freed, and Ray's
name of the machine they are on."""


@dataclass(eq=False)
class RayChild:
    """One actor; see :class:`~lengthwise.pipeline.crew.Child`.

    Attributes:
        name: such as "target worker 0 (cuda)".
        number: its place among its kind.
        actor: Ray's handle.
        shelf: the crew's.
        bundle: of the placement group, which it runs in; None for none.
        host: address of the machine, once it has begun.
        node_id: Ray's name of that machine.
        pid: of its process there.
        ready: whether it has said that it waits for work.
        timings: that it measured before.
        silent_seconds: for which it had not answered when it was killed for that; None otherwise.
        gone: whether it has ended.
    """

    name: str
    number: int
    actor: Any
    shelf: Shelf
    bundle: int | None = None
    host: str | None = None
    node_id: str | None = None
    pid: int | None = None
    ready: bool = False
    timings: tuple[Measurement, ...] = ()
    silent_seconds: float | None = None
    gone: bool = False
    _num_sent: int = 0
    _why: str = "ended"
    _killed: float | None = None
    _begun: Any = None
    _poll: Any = None
    _asked: dict[Any, tuple[object, list[Any]]] = field(default_factory=dict)
    _delivered: dict[tuple[int, int], tuple[Part, ...]] = field(default_factory=dict)

    def begin(self, work: bytes, data: Any) -> None:
        """Start its body; see :meth:`~lengthwise.pipeline.on_ray.actor.ChildActor.begin`."""
        self._begun = self.actor.begin.remote(work, data)
        self._poll = self.actor.listen.remote()

    @property
    def pending(self) -> list[Any]:
        """References that become ready when it has something to say."""
        first = [] if self._begun is None else [self._begun]
        return [*first, *([] if self._poll is None else [self._poll]), *self._asked]

    @property
    def overdue(self) -> bool:
        """Whether it was killed so long ago that it must be dead."""
        return self._killed is not None and time.monotonic() > self._killed + GRACE_SECONDS

    def send(self, message: object) -> None:
        """Send a message, without waiting; features that it speaks of as references."""
        if self.gone:
            return
        number, self._num_sent = self._num_sent, self._num_sent + 1
        if isinstance(message, RunBatch):
            count = 1 + len(message.parts)
            found = self.actor.ask.options(num_returns=count).remote(number, message)
            answer, *features = found if message.parts else [found]
            self._asked[answer] = (message, features)
        elif isinstance(message, Evaluate):
            self._asked[self.actor.ask.remote(number, message)] = (message, [])
        elif isinstance(message, (Deliver, Again)):
            if isinstance(message, Deliver):
                self._delivered[message.epoch, message.step] = message.parts
            references = {part: self.shelf[part.pages][0] for part in message.parts}
            self.actor.tell.remote(number, message, references)
        else:
            self.actor.tell.remote(number, message, {})

    def kill(self) -> None:
        """End it at once."""
        self._killed = self._killed or time.monotonic()
        require_ray().kill(self.actor, no_restart=True)

    def ending(self) -> str:
        """How it ended, in words."""
        if self.silent_seconds is not None:
            return f"did not answer for {self.silent_seconds:,.0f} seconds and was killed"
        place = "" if self.pid is None else f" (process {self.pid} on {self.host})"
        return f"{self._why}{place}"

    def forget_batches(self) -> None:
        """What it runs is not heard of any more."""
        evaluations = {ref: one for ref, one in self._asked.items() if isinstance(one[0], Evaluate)}
        self._asked = evaluations

    def heard(self, references: set[Any]) -> Iterator[object]:
        """What it says by those of its references that are ready; None where it is gone."""
        ray = require_ray()
        try:
            if self._begun in references:
                yield self._placed(ray.get(self._begun))
            for answer in [one for one in self._asked if one in references]:
                message = ray.get(answer)
                self._keep(message, *self._asked.pop(answer))
                yield message
            if self._poll in references:
                yield from self._said(ray.get(self._poll))
        except ray.exceptions.RayActorError as error:
            yield from self.last_words()
            self.leave(ending_of(str(error)))
        except ray.exceptions.RayTaskError as error:  # of the actor around the body
            yield Failed(f"{type(error.cause).__name__}: {error.cause}", str(error), time.time())
            self.leave("was ended after an error")
        if self.gone:
            yield None

    def last_words(self) -> Iterator[object]:
        """Answers that it gave before its end."""
        ray = require_ray()
        if self._asked:
            answered, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
            for answer in answered:
                asked = self._asked.pop(answer)
                try:
                    message = ray.get(answer)
                except ray.exceptions.RayError:
                    continue
                self._keep(message, *asked)
                yield message

    def leave(self, why: str) -> None:
        """It is gone; nothing of it is kept.

        Args:
            why: how it ended, in words.
        """
        self.kill()
        self.gone, self._why = True, why
        self._begun = self._poll = None
        self._asked.clear()

    def _placed(self, where: Whereabouts) -> Placed:
        self._begun = None
        self.host, self.node_id, self.pid = where.host, where.node_id, where.pid
        return Placed(where.host)

    def _said(self, messages: list[object]) -> Iterator[object]:
        """What came by the poll; asks for more before it is dealt with."""
        self._poll = self.actor.listen.remote()
        for message in messages:
            if isinstance(message, Ended):
                self.leave("has ended")
                return
            if isinstance(message, Copied):
                for part in self._delivered.pop((message.epoch, message.step)):
                    del self.shelf[part.pages]
            yield message

    def _keep(self, message: object, asked: object, features: list[Any]) -> None:
        """Put references to features on the shelf, until a rank has copied them."""
        if not isinstance(message, Arrived):
            return
        assert isinstance(asked, RunBatch), "it is the answer to a batch"
        for part, reference in zip(asked.parts, features, strict=True):
            if part.sample_id not in message.bad:
                self.shelf[part.pages] = reference, self.node_id


def ending_of(text: str) -> str:
    """How an actor ended, in a few words, from what Ray says at length."""
    if "node has died" in text:
        return "was lost: its machine is gone"
    if "is unavailable" in text:
        return "was lost: it cannot be reached"
    for mark in ("Worker exit detail:", "worker process has died."):
        _, found, detail = text.partition(mark)
        if found:
            for advice in ("There are some potential root causes", "Some common causes include"):
                detail = detail.partition(advice)[0]
            return f"was lost: its process has died. {_one_line(detail)}".rstrip(". ")
    return f"was lost: {_one_line(text)}"


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(". ")
