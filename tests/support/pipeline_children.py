"""Child processes that behave in some way; imports nothing heavy, so that they start at once."""

from __future__ import annotations

import os
import signal
import struct
import time
import warnings

from lengthwise.errors import DataError, LengthwiseWarning
from lengthwise.pipeline.messages import Leave, Ready


def behave(wire, how):
    """Say that it is ready, then behave as told."""
    wire.send(Ready())
    if how == "raise":
        raise ValueError("no such thing")
    if how == "raise ours":
        raise DataError("sample 7 is bad")
    if how == "warn":
        warnings.warn("look here", LengthwiseWarning, stacklevel=1)
    if how == "half":
        wire._end.sendall(struct.pack("!Q", 1000) + bytes(10))
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(3)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while how != "deaf" and not isinstance(wire.receive(), Leave):
        pass
    if how == "deaf":
        time.sleep(600)
