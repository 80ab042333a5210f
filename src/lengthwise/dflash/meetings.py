"""How long a rank is with the others: waits for the slowest, and sums gradients with them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Meetings:
    """A clock that runs while ranks are together.

    On CUDA the time is the device's, by events: the host does not wait there.

    Attributes:
        seconds: of all meetings that :meth:`settle` has been called after.
        awaited: whether this rank waits for the others at this moment, or for its device, which
            does; other threads may look.
    """

    def __init__(self) -> None:
        """No meeting yet."""
        self.seconds = 0.0
        self.awaited = False
        self._open: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    @contextmanager
    def held(self, device: torch.device) -> Iterator[None]:
        """What is done inside is a meeting; waits for no device."""
        if device.type == "cuda":
            with torch.cuda.device(device):
                first, last = _event(), _event()
                first.record()
                yield
                last.record()
            self._open = (first, last)
            return
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """What is done inside may take as long as the slowest rank needs."""
        self.awaited = True
        try:
            yield
        finally:
            self.awaited = False

    def settle(self) -> None:
        """Count the last meeting in; the device has been waited for since, for other reasons."""
        if self._open is not None:
            first, last = self._open
            self.seconds += first.elapsed_time(last) / 1000
            self._open = None


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
