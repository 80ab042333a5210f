"""From a position in a run to one replica's batches, many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.resharding import deal_rest
from lengthwise.errors import PlanError, PlanMismatchError
from lengthwise.loader.plan_ahead import PlanAhead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lengthwise.core.batches import Batches
    from lengthwise.core.fixed import FixedBatches
    from lengthwise.core.planner import Planner
    from lengthwise.core.resharding import Segment
    from lengthwise.loader.distributed import Replica
    from lengthwise.loader.state import Position

SAMPLES_PER_CHUNK = 1 << 13
"""Samples turned into Python integers at once: enough to forget the cost of a call, and so few
that they stay in a core's cache until they are handed out."""


@dataclass(frozen=True, slots=True, eq=False)
class Dealing:
    """Batches dealt to replicas, and one replica's share of them.

    Attributes:
        source: the batches of all replicas; step ``s`` of replica ``r`` is batch
            ``s * num_replicas + r``.
        replica: whose share.
        batches_per_chunk: batches whose samples are turned into Python integers at once.
        num_before: steps of the epoch that were done before these.
        num_dropped: samples that dealing the rest of an epoch anew had to drop.
    """

    source: Batches | FixedBatches
    replica: Replica
    batches_per_chunk: int
    num_before: int = 0
    num_dropped: int = 0

    @property
    def num_steps(self) -> int:
        """Batches of this replica."""
        return len(self.source) // self.replica.num_replicas

    def chunks(self, first: int) -> Iterator[tuple[list[int], list[int]]]:
        """The batches from step ``first`` on, some thousand samples at a time.

        Yields:
            Samples, and edges: batch i of the chunk is ``samples[edges[i] : edges[i + 1]]``.
        """
        replica = self.replica
        for start in range(first, self.num_steps, self.batches_per_chunk):
            stop = min(start + self.batches_per_chunk, self.num_steps)
            steps = np.arange(start, stop, dtype=np.int64)
            samples, edges = self.source.gather(steps * replica.num_replicas + replica.rank)
            yield samples.tolist(), edges.tolist()


class Dealer:
    """Deals the batches of any position to a replica.

    Args:
        planner: plans for the replica's number of replicas.
        replica: whose batches.
        plan_ahead: see :class:`PlanAhead`.
    """

    def __init__(self, planner: Planner, replica: Replica, *, plan_ahead: bool) -> None:
        """Nothing is planned yet."""
        self.planner = planner
        self.replica = replica
        self.ahead = PlanAhead(planner, enabled=plan_ahead)
        self._last: tuple[int, tuple[Segment, ...], Dealing] | None = None

    def with_replica(self, replica: Replica) -> Dealer:
        """A dealer of the same data for another replica."""
        planner = self.planner
        if replica.num_replicas != planner.num_replicas:
            planner = planner.with_replicas(replica.num_replicas)
        return Dealer(planner, replica, plan_ahead=self.ahead.enabled)

    def with_planner(self, planner: Planner) -> Dealer:
        """A dealer of another planner's batches to the same replica."""
        return Dealer(planner, self.replica, plan_ahead=self.ahead.enabled)

    def at(self, position: Position) -> tuple[Dealing, int]:
        """The dealing that goes on at a position, and the step of it that comes next.

        Raises:
            PlanMismatchError: the position lies beyond the end of its epoch.
            PlanError: what is left of the epoch cannot be dealt.
        """
        earlier, first = position.split(self.replica.num_replicas)
        dealing = self._deal(position.epoch, earlier)
        if first > dealing.num_steps:
            raise PlanMismatchError(
                f"step {first:,} of epoch {position.epoch:,} was done, which has only "
                f"{dealing.num_steps:,} steps on {self.replica.num_replicas:,} replicas"
            )
        return dealing, first

    def resume_at(self, position: Position) -> tuple[Dealing, int]:
        """As :meth:`at`, for a position that was saved, perhaps on another number of replicas.

        Raises:
            PlanMismatchError: nothing goes on at this position.
        """
        try:
            return self.at(position)
        except PlanError as error:
            if isinstance(error, PlanMismatchError) or not position.done:
                raise
            raise PlanMismatchError(
                f"the rest of epoch {position.epoch} cannot be dealt to "
                f"{self.replica.num_replicas:,} replicas: {error} Or resume on "
                f"{position.done[-1].num_replicas:,} replicas; or do not load this state and call "
                f"set_epoch({position.epoch + 1}) to begin the next epoch."
            ) from error

    def _deal(self, epoch: int, earlier: tuple[Segment, ...]) -> Dealing:
        if self._last is None or self._last[:2] != (epoch, earlier):
            self._last = None  # lets go of the old plan before the new one is made
            dealing = self._deal_rest(epoch, earlier) if earlier else self._deal_all(epoch)
            self._last = (epoch, earlier, dealing)
        return self._last[2]

    def _deal_all(self, epoch: int) -> Dealing:
        source = self.ahead.plan(epoch).source
        return Dealing(source, self.replica, self._chunk(len(source)))

    def _deal_rest(self, epoch: int, earlier: tuple[Segment, ...]) -> Dealing:
        rest = deal_rest(self.planner, epoch, earlier)
        return Dealing(
            rest.source,
            self.replica,
            self._chunk(len(rest.source)),
            num_before=sum(part.num_steps for part in earlier),
            num_dropped=rest.num_dropped,
        )

    def _chunk(self, num_batches: int) -> int:
        num_samples = self.planner.prepared.num_samples
        return max(1, SAMPLES_PER_CHUNK * num_batches // max(num_samples, 1))

    def __getstate__(self) -> dict[str, object]:
        """Without what can be planned again."""
        return {**self.__dict__, "_last": None}
