"""What passes through a pipeline: batches of the target, and the steps that need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class StepNeeds:
    """Which arrivals each step needs: step s those in ``arrivals[edges[s] : edges[s + 1]]``.

    Attributes:
        arrivals: indices, repeats allowed; int64, shape (N,).
        edges: int64, rising, shape (S + 1,).
    """

    arrivals: Int64Array
    edges: Int64Array


@dataclass(frozen=True, eq=False)
class Workload:
    """Batches of the target, in the order in which they are run, and steps of the drafter.

    Args:
        arrival_seconds: that a target takes for each batch; float64, shape (A,).
        arrival_bytes: of features that each leaves in the channel; int64, shape (A,).
        arrival_tokens: real tokens of each; int64, shape (A,).
        step_seconds: that the drafter takes for each step, over all its devices (or one of them
            where they are independent); float64, shape (S,).
        step_ready: the last arrival that each step needs; int64, shape (S,). Need not rise: steps
            are learnt from in order anyhow.
        step_bytes: freed in the channel when the step's samples have been copied; int64, (S,).
        feed_seconds: to read each batch's samples; float64, shape (A,). None: 0.
        step_needs: exactly which arrivals each step needs; None: all up to ``step_ready``.

    Raises:
        ConfigError: shapes that do not fit, times or bytes below 0, a step that needs an arrival
            that is not there, or that frees more than has come.
    """

    arrival_seconds: Float64Array
    arrival_bytes: Int64Array
    arrival_tokens: Int64Array
    step_seconds: Float64Array
    step_ready: Int64Array
    step_bytes: Int64Array
    feed_seconds: Float64Array | None = None
    step_needs: StepNeeds | None = None

    def __post_init__(self) -> None:
        """Bring all to arrays; refuse what cannot be."""
        if self.feed_seconds is None:
            object.__setattr__(self, "feed_seconds", np.zeros(len(self.arrival_seconds)))
        for name in ("arrival_seconds", "feed_seconds", "step_seconds"):
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))
        for name in ("arrival_bytes", "arrival_tokens", "step_ready", "step_bytes"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        _same_size(self, "arrival_seconds", ("arrival_bytes", "arrival_tokens", "feed_seconds"))
        _same_size(self, "step_seconds", ("step_ready", "step_bytes"))
        if int(self.step_ready.max()) >= self.num_arrivals:
            raise ConfigError(
                f"step {int(self.step_ready.argmax()):,} needs arrival "
                f"{int(self.step_ready.max()):,}; there are {self.num_arrivals:,}, counted from 0"
            )
        _check_needs(self)
        beyond = np.cumsum(self.step_bytes) > np.cumsum(self.arrival_bytes)[self.last_needed]
        if bool(beyond.any()):
            raise ConfigError(
                f"by step {int(beyond.argmax()):,} more bytes are freed than have come by arrival "
                f"{int(self.last_needed[beyond.argmax()]):,}"
            )

    @property
    def num_arrivals(self) -> int:
        """Batches of the target."""
        return int(self.arrival_seconds.size)

    @property
    def num_steps(self) -> int:
        """Steps of the drafter."""
        return int(self.step_seconds.size)

    @property
    def num_tokens(self) -> int:
        """Real tokens of all batches."""
        return int(self.arrival_tokens.sum())

    @cached_property
    def last_needed(self) -> Int64Array:
        """The last arrival that each step, or one before it, needs; int64, shape (S,)."""
        return np.maximum.accumulate(self.step_ready)

    def needs_of(self, step: int) -> Int64Array:
        """The arrivals that a step needs; int64."""
        if self.step_needs is None:
            return np.arange(self.step_ready[step] + 1)
        first, last = self.step_needs.edges[step : step + 2]
        return np.unique(self.step_needs.arrivals[first:last])

    @cached_property
    def least_channel_bytes(self) -> int:
        """Bytes of the channel with which a pipeline never comes to a standstill, and no fewer."""
        entered = np.cumsum(self.arrival_bytes)
        freed = np.concatenate(([0], np.cumsum(self.step_bytes)))
        # Before an arrival there is room for, every step that does without it can be copied.
        done = np.searchsorted(self.last_needed, np.arange(self.num_arrivals), side="left")
        return int((entered - freed[done]).max())

    def channel_bytes(self, num_ahead: int) -> int:
        """The same with room for ``num_ahead`` of the largest batches on top."""
        largest = np.sort(self.arrival_bytes)[::-1][:num_ahead]
        return self.least_channel_bytes + int(largest.sum())

    def scaled(self, *, target: float = 1.0, drafter: float = 1.0) -> Workload:
        """The same work where targets or drafters take so many times as long."""
        return replace(
            self,
            arrival_seconds=self.arrival_seconds * target,
            step_seconds=self.step_seconds * drafter,
        )


def _seconds(name: str, values: npt.ArrayLike) -> Float64Array:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not array.size:
        raise ConfigError(f"{name} must be one row of at least one number, got {array.shape}")
    bad = ~(np.isfinite(array) & (array >= 0))
    if bool(bad.any()):
        at = int(bad.argmax())
        raise ConfigError(f"{name} must be finite and not negative; number {at:,} is {array[at]}")
    return array


def _whole(name: str, values: npt.ArrayLike) -> Int64Array:
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(f"{name} must be one row of whole numbers, got {array.dtype}")
    if int(array.min()) < 0:
        raise ConfigError(f"{name} must not be negative; number {int(array.argmin()):,} is")
    return array.astype(np.int64, copy=False)


def _same_size(work: Workload, first: str, others: tuple[str, ...]) -> None:
    size = getattr(work, first).size
    for name in others:
        if getattr(work, name).size != size:
            raise ConfigError(
                f"{name} must have as many numbers as {first}, {size:,}; got "
                f"{getattr(work, name).size:,}"
            )


def _check_needs(work: Workload) -> None:
    if work.step_needs is None:
        return
    arrivals, edges = work.step_needs.arrivals, work.step_needs.edges
    rising = edges.size == work.num_steps + 1 and bool((np.diff(edges) > 0).all())
    if not rising or edges[0] != 0 or edges[-1] != arrivals.size:
        raise ConfigError("step_needs must name at least one arrival for each step, by its edges")
    if not np.array_equal(np.maximum.reduceat(arrivals, edges[:-1]), work.step_ready):
        raise ConfigError("step_ready must be the last arrival of each step in step_needs")
