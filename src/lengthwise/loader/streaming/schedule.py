"""Which batch this replica takes in each step: planned by all replicas alike."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Protocol

from lengthwise.errors import LengthwiseWarning, PlanError
from lengthwise.loader.streaming.buffer import fit_count, num_even_steps

if TYPE_CHECKING:
    from lengthwise.loader.distributed import Replica
    from lengthwise.loader.streaming.buffer import Group
    from lengthwise.loader.streaming.feed import Feed


class Schedule(Protocol):
    """Deals a pass out in steps.

    Attributes:
        tail: the batches that are left, once the stream has ended; ``None`` before.
        num_steps: steps taken.
        steps_left: steps until replicas must agree again; 0 where they need not.
        final: the number of steps that are left is settled.
    """

    tail: list[Group] | None
    num_steps: int
    steps_left: int
    final: bool

    def prepare(self) -> None:
        """See to it that the next step can be taken, or that it is known that there is none."""
        ...

    @property
    def finished(self) -> bool:
        """Whether there is no next step; known after :meth:`prepare`."""
        ...

    def take(self) -> Group:
        """This replica's batch of the next step."""
        ...


class Replicated:
    """All replicas read one stream and form all batches of a step; each takes its own.

    Nothing is communicated: the batches depend on the stream, the settings and the seed alone. So
    counts are equal by construction, and any replica's state is every replica's state.

    Args:
        feed: reads the whole stream.
        replica: whose batches to yield.
    """

    def __init__(self, feed: Feed, replica: Replica) -> None:
        """No step is taken yet."""
        self.tail: list[Group] | None = None
        self.num_steps = self.steps_left = 0
        self.final = False
        self._feed, self._replica = feed, replica
        count = replica.num_replicas
        self._reserve = feed.config.least_buffered(count) - count

    def prepare(self) -> None:
        """See :class:`Schedule`."""
        feed, count = self._feed, self._replica.num_replicas
        if self.tail is None:
            feed.fill(count)
            if not feed.reader.exhausted:
                return
            self.tail = feed.take_rest()
        if self.final:
            return
        if feed.config.drop_last:
            steps = len(self.tail) // count
        else:
            steps = num_even_steps(self.tail, count)
        self.tail = settle(feed, self.tail, steps * count)
        self.final = True
        if not self.num_steps and not steps:
            raise no_step(feed, count)

    @property
    def finished(self) -> bool:
        """See :class:`Schedule`."""
        return self.final and not self.tail

    def take(self) -> Group:
        """See :class:`Schedule`."""
        self.num_steps += 1
        rank, count = self._replica.rank, self._replica.num_replicas
        if self.tail is not None:
            step, self.tail = self.tail[:count], self.tail[count:]
            return step[rank]
        feed = self._feed
        step, feed.alone = feed.alone[:count], feed.alone[count:]
        while len(step) < count:
            # What is left must give each later batch of the step a sample, and every replica one
            # in the last step, should the stream end here.
            keep = count - 1 - len(step) + self._reserve
            step.append(feed.form(feed.num_formed, len(feed.buffer) - keep))
        return step[rank]


def settle(feed: Feed, groups: list[Group], count: int) -> list[Group]:
    """Exactly ``count`` of the last batches: some cut in two, or left out, counted and told."""
    limits = feed.config.limits
    tail, left_out = fit_count(groups, count, limits)
    feed.stats.num_split_batches += max(0, count - len(groups))
    dropped = sum(map(len, left_out))
    feed.stats.num_dropped_samples += dropped
    if dropped and not feed.config.drop_last:
        warnings.warn(
            f"the last {dropped:,} samples of the stream are left out: each is a batch of its own, "
            f"and they do not divide by the replicas",
            LengthwiseWarning,
            stacklevel=2,
        )
    return tail


def no_step(feed: Feed, num_replicas: int) -> PlanError:
    """The error of a pass without a single step."""
    stats = feed.stats
    dropped = stats.num_dropped_oversize
    if not stats.num_read:
        return PlanError("the stream yielded no samples")
    if dropped == stats.num_read:
        return PlanError(
            f"oversize='drop' leaves nothing: all {dropped:,} samples of the stream are too long"
        )
    return PlanError(
        f"the {stats.num_read:,} samples of the stream do not give each of {num_replicas:,} "
        f"replicas a batch (drop_last={feed.config.drop_last}). Use fewer replicas, or more data."
    )
