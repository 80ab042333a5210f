"""The processes of a run: started, watched, ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from lengthwise.pipeline.child import run_child
from lengthwise.pipeline.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.context import SpawnProcess

GRACE_SECONDS = 5.0
"""Between asking a process to end and killing it."""


@dataclass(eq=False)
class Child:
    """One process, as the coordinator sees it.

    Attributes:
        name: such as "target worker 0 (cuda:0)".
        process: it.
        wire: to it.
        number: its place among its kind.
        ready: whether it has said that it waits for work.
        owes_since: when the oldest thing was asked of it that it has not answered; None if nothing.
    """

    name: str
    process: SpawnProcess
    wire: Wire
    number: int
    ready: bool = False
    owes_since: float | None = None
    gone: bool = field(default=False)

    def ending(self) -> str:
        """How it ended, in words."""
        code = self.process.exitcode
        if code is None:
            return "does not answer"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def start(body: Callable[..., None], task: object, name: str, number: int) -> Child:
    """Start a process that runs ``body(wire, task)``."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_child, args=(body, theirs, task), name=name)
    process.start()
    theirs.close()
    return Child(name, process, Wire(ours), number)


def messages(children: Iterable[Child], seconds: float) -> Iterator[tuple[Child, Any]]:
    """What children say within some time: (child, message), and (child, None) when one is gone.

    What a child said before its end is heard first. Yields everything that is there, then returns.
    """
    by_end: dict[Any, Child] = {}
    for child in children:
        if not child.gone:
            by_end[child.wire.pipe] = child
            by_end[child.process.sentinel] = child
    ready = {id(by_end[end]): by_end[end] for end in wait(list(by_end), seconds)}
    for child in ready.values():
        yield from _heard_from(child)


def _heard_from(child: Child) -> Iterator[tuple[Child, Any]]:
    dead = child.process.exitcode is not None
    with contextlib.suppress(EOFError, OSError):
        while child.wire.pipe.poll():
            yield child, child.wire.receive()
        if not dead:
            return
    child.gone = True
    child.process.join(GRACE_SECONDS)
    yield child, None


def end_all(children: Iterable[Child], *, at_once: bool) -> None:
    """End all processes: wait for them a little, ask, then kill. None is left afterwards.

    Args:
        children: of the run.
        at_once: do not wait first.
    """
    left = list(children)
    if not at_once:
        _join(left, GRACE_SECONDS)
    for step in ("terminate", "kill"):
        for child in left:
            if child.process.is_alive():
                getattr(child.process, step)()
        _join(left, GRACE_SECONDS)
    for child in left:
        child.wire.close()


def _join(children: list[Child], seconds: float) -> None:
    until = time.monotonic() + seconds
    for child in children:
        child.process.join(max(0.0, until - time.monotonic()))
