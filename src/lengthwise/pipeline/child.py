"""What every child process does first, and how it ends: never an orphan, never a silent death.

Imports nothing heavy, so that a child watches over its coordinator before it loads anything.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.errors import LengthwiseError, LengthwiseWarning
from lengthwise.pipeline.messages import Failed, Warned
from lengthwise.pipeline.wire import HangUpError, Wire

if TYPE_CHECKING:
    from socket import socket


class Sends(Protocol):
    """A child's end of its connection, as far as it speaks."""

    def send(self, message: object) -> None:
        """Send a message."""


ORPHANED = 75
"""Exit code of a child whose coordinator is gone."""


def run_child(end: socket, work: bytes) -> None:
    """Run ``body(wire, task)``; an error is reported before the process ends with code 1.

    Ctrl-C in a terminal reaches all processes of it, and a system that shuts down ends all at once;
    what to do is the coordinator's decision, so a child ignores both signals. It leaves at once
    where the coordinator is gone.

    Args:
        end: of the connection to the coordinator.
        work: body and task, pickled.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Bars of several processes would write over each other, and over the coordinator's display.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    threading.Thread(target=_watch_parent, name="watch-parent", daemon=True).start()
    wire = Wire(end)
    pass_warnings_on(wire)
    try:
        body, task = pickle.loads(work)  # noqa: S301 - from our own process
        body(wire, task)
    except HangUpError:
        leave_orphaned()
    except BaseException as error:  # noqa: BLE001 - told to the coordinator
        try:
            wire.send(failure_of(error, time.monotonic()))
        except HangUpError:
            leave_orphaned()
        raise SystemExit(1) from None


def failure_of(error: BaseException, moment: float) -> Failed:
    """What a child tells of an error that it is just dealing with.

    Args:
        error: it.
        moment: when it was caught, on a clock that all children of the run share.
    """
    # A message of ours says all; of anything else it is worth knowing where it happened.
    trace = "" if isinstance(error, LengthwiseError) else traceback.format_exc()
    return Failed(f"{type(error).__name__}: {error}", trace, moment)


def leave_orphaned() -> None:
    """End this process at once; called from any thread when the coordinator is gone."""
    os._exit(ORPHANED)


def _watch_parent() -> None:
    parent = parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    leave_orphaned()


def pass_warnings_on(wire: Sends) -> None:
    """Our own warnings go to the coordinator, which shows them; others to standard error."""
    show = warnings.showwarning

    def pass_on(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, LengthwiseWarning):
            wire.send(Warned(str(message)))
        else:
            show(message, category, *place, **more)

    warnings.simplefilter("always", LengthwiseWarning)
    warnings.showwarning = pass_on
