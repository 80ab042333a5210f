"""Copies between devices and the channel. On CUDA they run beside the work, on own streams.

On the CPU a copy is made where it is asked for. The CUDA side follows the rules of streams, and of
memory that more than one stream uses; no test here has a GPU to run it on.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lengthwise.pipeline.arena import Channel
    from lengthwise.pipeline.messages import Arrived, Part
    from lengthwise.pipeline.wire import Wire


class Outbox:
    """Takes features to the channel, and says that a batch has arrived when all of them are there.

    Args:
        wire: to the coordinator.
        device: where the features are made.
    """

    def __init__(self, wire: Wire, device: torch.device) -> None:
        """Make the stream and the thread that waits for it, where the device is CUDA."""
        self._wire = wire
        self._began = 0.0
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._leaving: queue.Queue[Any] = queue.Queue()
            threading.Thread(target=self._wait, name="outbox", daemon=True).start()

    def begin(self) -> None:
        """A batch begins."""
        self._began = time.perf_counter()
        if self._stream is not None:
            self._first = _event()
            self._first.record()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copies made inside run after the batch, and beside what comes next."""
        if self._stream is None:
            yield
            return
        self._last = _event()
        self._last.record()
        self._stream.wait_event(self._last)
        with torch.cuda.stream(self._stream):
            yield

    def send(self, message: Arrived, features: Sequence[torch.Tensor]) -> None:
        """Send a message when all copies have been made.

        Args:
            message: gets the seconds that the device was busy with the batch and, where the
                device runs beside this process, those that it was idle before.
            features: kept until then.
        """
        if self._stream is None:
            busy = time.perf_counter() - self._began
            self._wire.send(replace(message, busy_seconds=busy))
        else:
            there = self._stream.record_event()
            self._leaving.put((there, self._first, self._last, message, features))

    def _wait(self) -> None:
        before: torch.cuda.Event | None = None
        while True:
            there, first, last, message, features = self._leaving.get()
            there.synchronize()
            del features
            # This process waits for batches while its device is at work: that is no waiting.
            idle = before.elapsed_time(first) / 1000 if before else message.wait_seconds
            busy, before = first.elapsed_time(last) / 1000, last
            self._wire.send(replace(message, busy_seconds=busy, wait_seconds=idle))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class Inbox:
    """Fetches features out of the channel.

    Args:
        channel: where they are.
        device: where they are wanted.
    """

    def __init__(self, channel: Channel, device: torch.device) -> None:
        """Make the stream, where the device is CUDA."""
        self._channel = channel
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def fetch(self, parts: Sequence[Part]) -> list[torch.Tensor]:
        """Copies of all samples' features, made when this returns; waits for no other work."""
        if self._stream is None:
            return [self._channel.read(part) for part in parts]
        with torch.cuda.stream(self._stream):
            copies = [self._channel.read(part, self._device) for part in parts]
        self._stream.synchronize()
        for copy in copies:
            # They are freed by the training's stream, which may still be reading them then.
            copy.record_stream(torch.cuda.default_stream(self._device))
        return copies
