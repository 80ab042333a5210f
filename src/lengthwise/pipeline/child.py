"""What every child process does first, and how it ends: never an orphan, never a silent death."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.pipeline.messages import Failed
from lengthwise.pipeline.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

WATCH_SECONDS = 0.5
ORPHANED = 75
"""Exit code of a child whose coordinator is gone."""


def run_child(body: Callable[..., None], pipe: Connection[Any, Any], *arguments: object) -> None:
    """Run ``body(wire, *arguments)``; an error is reported before the process ends with code 1.

    Ctrl-C in a terminal reaches all processes of it; what to do is the coordinator's decision, so a
    child ignores it. It leaves at once where the coordinator is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _watch_parent()
    wire = Wire(pipe)
    try:
        body(wire, *arguments)
    except EOFError:
        os._exit(ORPHANED)
    except BaseException as error:  # noqa: BLE001 - told to the coordinator
        kind = type(error).__name__
        message = Failed(f"{kind}: {error}", traceback.format_exc())
        try:
            wire.send(message)
        except OSError:
            os._exit(ORPHANED)
        raise SystemExit(1) from None


def _watch_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(ORPHANED)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def use_device(device: torch.device, num_processes: int) -> None:
    """Make a device this process's own; processes on the CPU share its cores."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        torch.set_num_threads(max(1, min(torch.get_num_threads(), (cores or 1) // num_processes)))
