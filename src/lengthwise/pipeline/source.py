"""Where a drafter rank's samples come from: the coordinator says which, the arena holds them."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.meetings import Meetings
from lengthwise.pipeline.child import leave_orphaned
from lengthwise.pipeline.messages import (
    Asked,
    Copied,
    Deliver,
    Learnt,
    Leave,
    Noted,
    Ping,
    Stop,
    Waits,
)
from lengthwise.pipeline.wire import HangUpError

if TYPE_CHECKING:
    from lengthwise.dflash.dataset import PreparedDataset
    from lengthwise.dflash.training.plan import Epoch
    from lengthwise.pipeline.copies import Inbox
    from lengthwise.pipeline.wire import Wire


class PipelineSource:
    """Hands out the samples that the coordinator delivers.

    A thread receives, and copies features out of the arena as soon as they are announced, so that
    their pages are free again before they are learnt from.

    Args:
        wire: to the coordinator.
        dataset: for tokens and masks; they do not travel.
        inbox: for features.
        meetings: of this rank with the others; None: it is alone.
    """

    def __init__(
        self,
        wire: Wire,
        dataset: PreparedDataset,
        inbox: Inbox,
        meetings: Meetings | None = None,
    ) -> None:
        """Begin to receive."""
        self._wire = wire
        self._dataset = dataset
        self._inbox = inbox
        self._ready: queue.Queue[Any] = queue.Queue()
        self._left = threading.Event()
        self._noted = threading.Event()
        self._expected: tuple[int, int] | None = None
        self._mark: float | None = None
        self._waited = self._copied = self._met = 0.0
        self._meetings = meetings or Meetings()
        threading.Thread(target=self._receive, name="receive", daemon=True).start()

    def begin(self, epoch: Epoch, num_done: int) -> None:
        """Expect the steps of an epoch from ``num_done`` on."""
        self._expected = (epoch.number, num_done)

    def take(self, step: int) -> list[Sample] | None:
        """This rank's samples of a step; None where the run is to end before it."""
        self.finish()
        began = time.perf_counter()
        message, samples, heard = self._ready.get()
        now = time.perf_counter()
        self._waited, self._copied = now - began, now - max(began, heard)
        if isinstance(message, BaseException):
            raise message
        assert self._expected is not None, "begin comes first"
        place = (self._expected[0], step)
        assert (message.epoch, message.step) == place, "steps come in order"
        if isinstance(message, Stop):
            return None
        self._mark = time.perf_counter()
        return samples  # type: ignore[no-any-return]

    def finish(self) -> None:
        """The step that was taken last has been learnt from."""
        if self._mark is not None:
            busy, met = time.perf_counter() - self._mark, self._meetings.seconds
            self._wire.send(Learnt(self._waited, busy, self._copied, met - self._met))
            self._mark, self._met = None, met

    def wait_until_noted(self) -> None:
        """Stay until the coordinator has taken down all that this rank has told it."""
        self._noted.clear()
        self._wire.send(Asked())
        self._noted.wait()

    def wait_to_leave(self) -> None:
        """Stay until the coordinator has heard all there is to hear."""
        self._left.wait()

    def _receive(self) -> None:
        try:
            while True:
                message = self._wire.receive()
                heard = time.perf_counter()
                if isinstance(message, Leave):
                    self._left.set()
                    return
                if isinstance(message, Noted):
                    self._noted.set()
                    continue
                if isinstance(message, Ping):
                    self._wire.send(Waits(self._meetings.awaited))
                    continue
                samples = None
                if isinstance(message, Deliver):
                    samples = self._samples(message)
                    self._wire.send(Copied(message.epoch, message.step))
                self._ready.put((message, samples, heard))
        except HangUpError:
            leave_orphaned()
        except BaseException as error:  # noqa: BLE001 - raised by whoever takes it
            self._ready.put((error, None, 0.0))

    def _samples(self, step: Deliver) -> list[Sample]:
        """The samples of a step, each checked: as many features as tokens.

        Raises:
            DataError: they are not; names the sample.
        """
        features = self._inbox.fetch(step.parts)
        samples = []
        for part, own in zip(step.parts, features, strict=True):
            row = self._dataset[part.sample_id]
            samples.append(Sample(part.sample_id, row["input_ids"], row["loss_mask"], own))
        return samples
