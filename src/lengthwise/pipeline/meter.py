"""Tells the observer, about once a second, how things flow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lengthwise.pipeline.dispatch import WORKER_DEPTH

if TYPE_CHECKING:
    from lengthwise.pipeline.dispatch import Dispatcher
    from lengthwise.pipeline.flow import Flow, PipelineObserver

FLOW_SECONDS = 1.0


class Meter:
    """Reads how full things are.

    Args:
        flow: takes the figures.
        observer: is told.

    Attributes:
        num_lost_batches: that were run again because a worker, or their features, were lost.
    """

    def __init__(self, flow: Flow, observer: PipelineObserver) -> None:
        """The run has not begun."""
        self._flow = flow
        self._observer = observer
        self._began: float | None = None
        self._due = 0.0
        self.num_lost_batches = 0

    @property
    def began(self) -> bool:
        """Whether work has been given out."""
        return self._began is not None

    def begin(self) -> None:
        """The first work is given out."""
        self._began = time.monotonic()

    def report(self, dispatcher: Dispatcher, *, at_once: bool = False) -> None:
        """Tell how things are, when it is time for it; before the run has begun never."""
        now = time.monotonic()
        if self._began is None or (now < self._due and not at_once):
            return
        self._due = now + FLOW_SECONDS
        flow = self._flow
        flow.seconds = now - self._began
        flow.prefetch = dispatcher.num_prefetched
        flow.prefetch_room = dispatcher.num_workers * WORKER_DEPTH
        flow.hidden_states = dispatcher.num_ready_steps
        flow.pages_used = dispatcher.pages.num_used
        flow.num_reruns = self.num_lost_batches + dispatcher.num_rerun
        self._observer.flowed(flow)
