"""The rest of an epoch, dealt to another number of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.fixed import FixedBatches
from lengthwise.core.limits import require_int
from lengthwise.core.order import OrderRule
from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.replicas import Dealt, fit_to_replicas
from lengthwise.errors import PlanMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.planner import Planner


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of an epoch that ran on one number of replicas.

    Args:
        num_replicas: replicas that ran it.
        num_steps: steps that each of them did.

    Raises:
        ConfigError: a number is not a whole number of at least 1.
    """

    num_replicas: int
    num_steps: int

    def __post_init__(self) -> None:
        """Normalise to plain ints."""
        for name in ("num_replicas", "num_steps"):
            value = require_int(name, getattr(self, name), least=1)
            object.__setattr__(self, name, value)

    @property
    def num_batches(self) -> int:
        """Batches that are done, over all replicas."""
        return self.num_replicas * self.num_steps


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What is left of an epoch.

    Attributes:
        source: its batches, in a number that the replicas divide.
        num_dropped: samples that were dropped for that.
    """

    source: Batches | FixedBatches
    num_dropped: int

    def batches(self, num_threads: int) -> Batches:
        """All of them as flat arrays."""
        return self.source if isinstance(self.source, Batches) else self.source.table(num_threads)


def deal_rest(planner: Planner, epoch: int, done: Sequence[Segment]) -> Rest:
    """What is left of an epoch, dealt to the planner's replicas.

    The batches stay what they are; they are arranged anew by the config's
    ``order`` and ``balance``. Where they do not divide by the replicas, the config's policy
    decides as for a whole epoch: batches are split, or with ``drop_last`` dropped and counted. So
    every sample is seen once in the epoch, however often the number of replicas changed. With
    ``drop_last`` there may be no batch left.

    Batches of fixed sizes are not arranged anew, which would take laying out the epoch; they keep
    their order. See :meth:`FixedBatches.after`. So after a change of replicas a step no longer has
    exactly one batch of each stratum, nor only batches of like cost side by side.

    Args:
        planner: of the data and config that ran; its number of replicas is the new one.
        epoch: the epoch.
        done: what ran already, in order; at least one part.

    Raises:
        PlanMismatchError: a part is longer than what there was to do.
        PlanError: too little is left to give each replica a batch.
    """
    source = planner.with_replicas(done[0].num_replicas).plan(epoch).source
    following = [*(segment.num_replicas for segment in done[1:]), planner.num_replicas]
    lost = 0  # by the last change
    for part, (segment, num_replicas) in enumerate(zip(done, following, strict=True), 1):
        _check_done(len(source), segment)
        if isinstance(source, FixedBatches):
            source, lost = source.after(segment.num_batches, num_replicas)
        else:
            rest = source.select(np.arange(segment.num_batches, len(source)))
            dealt = _deal(rest, planner, epoch, num_replicas, part)
            source, lost = dealt.batches, int(dealt.dropped.sizes.sum())
    return Rest(source, lost)


def _check_done(num_batches: int, segment: Segment) -> None:
    if segment.num_batches > num_batches:
        raise PlanMismatchError(
            f"{segment.num_steps:,} steps on {segment.num_replicas:,} replicas were done, but the "
            f"epoch had only {num_batches // segment.num_replicas:,}"
        )


def _deal(rest: Batches, planner: Planner, epoch: int, num_replicas: int, part: int) -> Dealt:
    """Make the batches a multiple of the replicas and put them in order; pure in its arguments."""
    prepared, config = planner.prepared, planner.config
    if config.drop_last and len(rest) < num_replicas:
        return Dealt(rest.select(np.empty(0, np.int64)), 0, rest)
    floors = rest.padded if config.pad_to_boundary else np.zeros(len(rest), np.int64)
    dealt = fit_to_replicas(rest, floors, prepared, num_replicas, epoch)
    batches = dealt.batches
    rule = OrderRule(
        order=config.order,
        balance=config.balance,
        num_replicas=num_replicas,
        accumulation_steps=config.accumulation_steps,
    )
    key = stream_key(config.seed, epoch, Purpose.BATCHES, part)
    places = planner.arrange(batches, epoch, _buckets_of(batches, planner), rule, key)
    return Dealt(batches.select(places), dealt.num_split, dealt.dropped)


def _buckets_of(batches: Batches, planner: Planner) -> Int64Array:
    """The bucket of each batch, which all of its samples share."""
    if planner.config.boundaries is None:
        return np.zeros(len(batches), np.int64)
    firsts = planner.prepared.lengths.take(batches.order[batches.starts])
    buckets: Int64Array = np.searchsorted(planner.config.boundaries, firsts, side="right")
    return buckets
