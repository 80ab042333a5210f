"""The planner: one-off set-up for a data set, then a plan for every epoch."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.fingerprint import data_fingerprint, plan_fingerprint
from lengthwise.core.fixed import FixedBatches, lay_out
from lengthwise.core.limits import require_int
from lengthwise.core.locality import arrange_windows, pack_shard_groups, pool_slots, windows_of
from lengthwise.core.order import OrderRule, arrange
from lengthwise.core.packing import pack_epoch
from lengthwise.core.plan import EpochPlan
from lengthwise.core.prepare import prepare
from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.replicas import fit_to_number, fit_to_replicas
from lengthwise.core.stored import StoredLengths
from lengthwise.core.threads import default_threads

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches
    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.replicas import Dealt

MOST_PACKED = 64
"""Epochs that are packed at most to find out how many batches epochs need."""


class Planner:
    """Keeps the one-off set-up of a data set, so that planning an epoch is fast.

    Args:
        lengths: tokens of each sample, shape (N,), any integer type; or a list of such arrays,
            one a shard. Integers are not copied, and are read a part at a time, so they may be
            memory-mapped. Plans depend on the values alone, not on how they lie.
        config: every choice.
        num_replicas: replicas that run one batch each in every step.
        num_threads: threads for planning; default: the usable processors, at most 8. Plans do not
            depend on it.
        shard_sizes: samples of each shard of the data set, in its order, which only
            ``shards_per_group`` looks at. Default: as the lengths lie.

    Attributes:
        config: the config with its boundaries found.
        prepared: the grouped samples.
        num_replicas: as given.
        fingerprint: see :class:`EpochPlan`.

    Raises:
        BadLengthError: a length is not a whole number of at least 1.
        OversizeError: a sample fits no batch and ``oversize="error"``.
        PlanError: no plan exists for this data and replica count.
    """

    def __init__(
        self,
        lengths: npt.ArrayLike,
        config: BatchingConfig,
        *,
        num_replicas: int = 1,
        num_threads: int | None = None,
        shard_sizes: npt.ArrayLike | None = None,
    ) -> None:
        """Check, group and measure the lengths; see the class."""
        count = require_int("num_replicas", num_replicas, least=1, most=2**31)
        threads = default_threads() if num_threads is None else num_threads
        self.num_threads = require_int("num_threads", threads, least=1, most=4096)
        values = StoredLengths.of(lengths)
        self.prepared = prepare(values, config, self.num_threads, shard_sizes)
        self.config = self.prepared.config
        self.lengths_hash = data_fingerprint(values, self.prepared.shard_edges)
        self._floors = self.prepared.padding_floors()
        by_shards = config.shards_per_group is not None
        self._pool_slots = None if by_shards else pool_slots(self.prepared)
        self._deal_to(count)

    @property
    def lengths(self) -> Int64Array | StoredLengths:
        """What each sample counts as (cut under ``oversize="truncate"``), shape (N,).

        The int64 array that was given, or :class:`~lengthwise.core.stored.StoredLengths`, which
        gives int64 wherever it is indexed, and is not held in memory.
        """
        array = self.prepared.lengths.array
        return array if array is not None and array.dtype == np.int64 else self.prepared.lengths

    def _deal_to(self, num_replicas: int) -> None:
        self.num_replicas = num_replicas
        self.fingerprint = plan_fingerprint(
            self.lengths_hash, self.config.to_dict(), self.num_replicas
        )
        self._rule = OrderRule(
            order=self.config.order,
            balance=self.config.balance,
            num_replicas=self.num_replicas,
            accumulation_steps=self.config.accumulation_steps,
        )
        fixed = self.config.batch_sizing == "fixed"
        self._layout = lay_out(self.prepared, self.num_replicas) if fixed else None

    def with_replicas(self, num_replicas: int) -> Planner:
        """A planner of the same data for another number of replicas; shares the set-up.

        Raises:
            PlanError: no plan exists for so many replicas.
        """
        other = copy(self)
        Planner._deal_to(other, require_int("num_replicas", num_replicas, least=1, most=2**31))
        return other

    def evened(self, num_epochs: int) -> Planner:
        """A planner whose first ``num_epochs`` epochs all have the same number of batches.

        It is this planner where that is so by its config; else one with ``num_batches`` set to the
        most that any of these epochs needs, which takes packing each of them. Of more than
        ``MOST_PACKED`` epochs only the first so many are packed, and five standard deviations are
        added to their most. Shares the set-up.

        Raises:
            PlanError: the config's own ``num_batches`` is too small for one of the epochs packed.
        """
        num_epochs = require_int("num_epochs", num_epochs, least=1)
        if self._layout is not None:
            return self
        different = 1 if self.config.strategy == "sorted" else min(num_epochs, MOST_PACKED)
        packed = (self._pack(epoch) for epoch in range(different))
        if self.config.num_batches is not None:
            for epoch, batches in enumerate(packed):
                self._fit(batches, epoch)
            return self
        numbers = np.array([len(batches) for batches in packed])
        unseen = self.config.strategy != "sorted" and num_epochs > MOST_PACKED
        margin = max(1, int(np.ceil(5 * numbers.std()))) if unseen else 0
        most = min(int(numbers.max()) + margin, self.prepared.num_samples)
        other = copy(self)
        other.config = replace(self.config, num_batches=most)
        other.prepared = replace(self.prepared, config=other.config)
        Planner._deal_to(other, self.num_replicas)
        return other

    def plan(self, epoch: int) -> EpochPlan:
        """The plan of ``epoch`` (from 0): the same on every rank, without communication."""
        epoch = require_int("epoch", epoch, least=0)
        if self._layout is not None:
            source = FixedBatches.of_epoch(self.prepared, self._layout, epoch, self.num_replicas)
            counts = {
                "num_split_batches": self._layout.num_split,
                "num_dropped_batches": self._layout.num_dropped_batches,
                "num_dropped_samples": self._layout.num_dropped_samples,
            }
            return self._wrap(epoch, source, counts)
        dealt = self._fit(self._pack(epoch), epoch)
        counts = {
            "num_split_batches": dealt.num_split,
            "num_dropped_batches": len(dealt.dropped),
            "num_dropped_samples": int(dealt.dropped.sizes.sum()),
        }
        return self._wrap(epoch, self._arrange(dealt.batches, epoch), counts)

    def _pack(self, epoch: int) -> Batches:
        if self.config.shards_per_group is not None:
            return pack_shard_groups(self.prepared, self._floors, epoch, self.num_threads)
        return pack_epoch(
            self.prepared,
            self._pool_slots,
            self._floors,
            epoch=epoch,
            num_threads=self.num_threads,
        )

    def _fit(self, packed: Batches, epoch: int) -> Dealt:
        floors = self._floors[self._groups_of(packed)]
        if self.config.num_batches is None:
            return fit_to_replicas(packed, floors, self.prepared, self.num_replicas, epoch)
        number = -(-self.config.num_batches // self.num_replicas) * self.num_replicas
        return fit_to_number(packed, floors, self.prepared, number, epoch)

    def _groups_of(self, batches: Batches) -> Int64Array:
        """The group that each batch was packed from; 0 where batches cross groups."""
        if self.prepared.by_length:
            return np.zeros(len(batches), np.int64)
        if self.config.shards_per_group is None:
            return np.searchsorted(self.prepared.offsets, batches.starts, side="right") - 1
        firsts = self.prepared.lengths.take(batches.order[batches.starts])
        return np.searchsorted(self.prepared.tops, firsts)

    def _arrange(self, batches: Batches, epoch: int) -> Batches:
        key = stream_key(self.config.seed, epoch, Purpose.BATCHES)
        places = self.arrange(batches, epoch, self._groups_of(batches), self._rule, key)
        return batches.select(places)

    def arrange(
        self, batches: Batches, epoch: int, bucket_ids: Int64Array, rule: OrderRule, key: int
    ) -> Int64Array:
        """The order in which batches of an epoch run: a permutation of their numbers.

        Args:
            batches: of this planner's; all, or what is left of them.
            epoch: the epoch.
            bucket_ids: as for :func:`lengthwise.core.order.arrange`.
            rule: likewise.
            key: likewise.
        """
        if self.config.shards_per_group is not None:
            windows = windows_of(batches, self.prepared, epoch)
            return arrange_windows(batches, windows, bucket_ids, rule=rule, key=key)
        tokens, sizes, costs = batches.tokens, batches.sizes, batches.padded_tokens
        return arrange(tokens, sizes, costs, bucket_ids, rule=rule, key=key)

    def _wrap(
        self, epoch: int, source: Batches | FixedBatches, counts: dict[str, int]
    ) -> EpochPlan:
        oversize = int(self.prepared.oversize.size)
        policy = self.config.oversize
        counts = {
            **counts,
            "num_oversize": oversize,
            "num_dropped_oversize": oversize if policy == "drop" else 0,
            "num_truncated": oversize if policy == "truncate" else 0,
        }
        return EpochPlan(
            self.config,
            epoch,
            self.num_replicas,
            self.fingerprint,
            source,
            counts,
            self.num_threads,
        )


def build_plan(
    lengths: npt.ArrayLike,
    config: BatchingConfig,
    *,
    epoch: int = 0,
    num_replicas: int = 1,
    num_threads: int | None = None,
    shard_sizes: npt.ArrayLike | None = None,
) -> EpochPlan:
    """Plan one epoch. For several epochs keep a :class:`Planner`: its set-up is done once.

    Args:
        lengths: tokens of each sample, shape (N,), or a list of arrays.
        config: every choice.
        epoch: which epoch, from 0.
        num_replicas: replicas that run one batch each in every step.
        num_threads: threads for planning; the plan does not depend on it.
        shard_sizes: samples of each shard; see :class:`Planner`.

    Returns:
        The plan: equal on every rank, machine and platform for equal arguments.

    Raises:
        BadLengthError, OversizeError, PlanError: as :class:`Planner`.
    """
    planner = Planner(
        lengths,
        config,
        num_replicas=num_replicas,
        num_threads=num_threads,
        shard_sizes=shard_sizes,
    )
    return planner.plan(epoch)
