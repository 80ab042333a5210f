"""What the processes of a pipeline run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.pipeline.rank import RankTask, train
from lengthwise.pipeline.worker import WorkerTask, work

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.pipeline.wire import Wire


@dataclass(frozen=True, slots=True)
class Entries:
    """Where the processes of a pipeline begin.

    Others than these wrap them, to imitate a device or a fault. They are pickled.

    Attributes:
        work: of a target worker.
        train: of a drafter rank.
    """

    work: Callable[[Wire, WorkerTask], None] = work
    train: Callable[[Wire, RankTask], None] = train


ENTRIES = Entries()
"""The real ones."""
