"""When everything happened in a simulated pipeline, and sums over a stretch of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Seconds at which things happen to each batch of the target; shape (A,).

    Attributes:
        dispatched: it is given to a target, and its bytes in the channel are taken.
        reading: its samples begin to be read.
        read: they are there.
        started: the target begins.
        ended: the target is done.
        arrived: its features are in the channel.
        released: the target can begin the next: ``ended``, or ``arrived`` where transfers do not
            overlap with the next batch.
        target: which target runs it; int64.
    """

    dispatched: Float64Array
    reading: Float64Array
    read: Float64Array
    started: Float64Array
    ended: Float64Array
    arrived: Float64Array
    released: Float64Array
    target: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Seconds at which things happen to each step of the drafter; shape (S,).

    Attributes:
        ready: all its samples have arrived.
        delivered: it is given to a drafter.
        copied: its samples are there, and their bytes in the channel are free.
        begun: the drafter begins.
        learnt: the drafter is done.
        drafter: which drafter takes it, 0 where all are at the same step; int64.
    """

    ready: Float64Array
    delivered: Float64Array
    copied: Float64Array
    begun: Float64Array
    learnt: Float64Array
    drafter: Int64Array


def time_within(
    begin: Float64Array, end: Float64Array, window: tuple[float, float]
) -> Float64Array:
    """Seconds of each interval [begin, end] that lie in a window; shape of ``begin``."""
    lengths: Float64Array = np.clip(end, *window) - np.clip(begin, *window)
    return lengths


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Something that rises and falls: a value from each time on, until the next.

    Attributes:
        times: rising; float64, shape (E,).
        values: int64, shape (E,).
    """

    times: Float64Array
    values: Int64Array

    @classmethod
    def of(
        cls, rises: Float64Array, falls: Float64Array, up: Int64Array, down: Int64Array
    ) -> Level:
        """What has risen by ``up`` at ``rises`` and fallen by ``down`` at ``falls``.

        At one moment it first falls, then rises: what is freed is taken at once.
        """
        times = np.concatenate((falls, rises))
        changes = np.concatenate((-down, up))
        order = np.argsort(times, kind="stable")
        return cls(times[order], np.cumsum(changes[order]))

    def at(self, times: Float64Array) -> Int64Array:
        """The value at each of some times; 0 before the first."""
        places = np.searchsorted(self.times, times, side="right")
        padded: Int64Array = np.concatenate((np.zeros(1, np.int64), self.values))[places]
        return padded

    @property
    def peak(self) -> int:
        """The highest value that lasts."""
        lasting = np.append(np.diff(self.times) > 0, True)
        return max(0, int(self.values[lasting].max()))

    def mean_share(self, of: float, window: tuple[float, float]) -> float:
        """Mean over a window of the value as a share of ``of``, no more than 1 at any time."""
        shares = np.minimum(1.0, self.values[:-1] / of)
        spent = time_within(self.times[:-1], self.times[1:], window)
        return float((shares * spent).sum() / (window[1] - window[0]))
