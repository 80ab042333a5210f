"""The processes of a run on one machine: started, watched, ended."""

from __future__ import annotations

import multiprocessing
import pickle
import selectors
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.pipeline.child import run_child
from lengthwise.pipeline.wire import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

    from lengthwise.calibrate import Measurement
    from lengthwise.pipeline.wire import Wire

CONTEXT: BaseContext = multiprocessing.get_context("spawn")
"""How processes are made: anew, with nothing of this one's, as CUDA needs it."""
GRACE_SECONDS = 10.0
"""For a process that has been told to leave; then it is killed."""


@dataclass(eq=False)
class LocalChild:
    """One process, as the coordinator sees it; see :class:`~lengthwise.pipeline.crew.Child`.

    Attributes:
        name: such as "target worker 0 (cuda:0)".
        process: it.
        line: to it.
        number: its place among its kind.
        host: None: there is one machine.
        ready: whether it has said that it waits for work.
        timings: that it measured before.
        silent_seconds: for which it had not answered when it was killed for that; None otherwise.
        gone: whether it has ended.
    """

    name: str
    process: BaseProcess
    line: Line
    number: int
    host: str | None = None
    ready: bool = False
    timings: tuple[Measurement, ...] = ()
    silent_seconds: float | None = None
    gone: bool = False

    def send(self, message: object) -> None:
        """Send a message, now or as soon as it is taken."""
        self.line.send(message)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def ending(self) -> str:
        """How it ended, in words."""
        code = self.process.exitcode
        if self.silent_seconds is not None:
            return f"did not answer for {self.silent_seconds:,.0f} seconds and was killed"
        if code is None:
            return "hung up"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def start(body: Callable[[Wire, Any], None], task: object, name: str, number: int) -> LocalChild:
    """Start a process that runs ``body(wire, task)``."""
    ours, theirs = socket.socketpair()
    work = pickle.dumps((body, task))
    process: BaseProcess = CONTEXT.Process(  # type: ignore[attr-defined]
        target=run_child, args=(theirs, work), name=name
    )
    process.start()
    theirs.close()
    return LocalChild(name, process, Line(ours), number)


def messages(children: Iterable[LocalChild], seconds: float) -> Iterator[tuple[LocalChild, Any]]:
    """What children say within some time: (child, message), and (child, None) when one is gone.

    What a child said before its end is heard first. Returns when everything that is there has been
    yielded. No child can keep it waiting: what one does not take is sent later.
    """
    present = [child for child in children if not child.gone]
    stirring: dict[int, LocalChild] = {}
    with selectors.DefaultSelector() as selector:
        for child in present:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.line.unsent else 0)
            selector.register(child.line, events, child)
            selector.register(child.process.sentinel, selectors.EVENT_READ, child)
        for key, _ in selector.select(seconds):
            stirring[id(key.data)] = key.data
    for child in present:
        # A process that its own children outlive leaves its ends open; its exit code tells.
        if id(child) in stirring or child.process.exitcode is not None:
            yield from _heard_from(child)


def _heard_from(child: LocalChild) -> Iterator[tuple[LocalChild, Any]]:
    dead = child.process.exitcode is not None
    child.line.flush()
    for message in child.line.received():
        yield child, message
    if not dead and not child.line.ended:
        return
    child.gone = True
    if not dead:
        child.process.join(GRACE_SECONDS)
        child.process.kill()  # where it has not ended by then; nobody could speak to it
        child.process.join()
    yield child, None


def end_all(children: Iterable[LocalChild], *, at_once: bool) -> None:
    """End all processes; none is left afterwards.

    Args:
        children: of the run.
        at_once: kill them; otherwise they have been told to leave, and are killed if they do not.
    """
    left = list(children)
    until = time.monotonic() + (0.0 if at_once else GRACE_SECONDS)
    for child in left:
        while child.line.unsent and not child.line.ended and time.monotonic() < until:
            child.line.flush()
            time.sleep(0.01)
        child.process.join(max(0.0, until - time.monotonic()))
    for child in left:
        child.process.kill()
    for child in left:
        child.process.join()
        child.line.close()
