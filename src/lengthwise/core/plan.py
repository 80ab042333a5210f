"""An epoch's plan, and the planner that makes one for every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.fingerprint import PLAN_VERSION, lengths_fingerprint, plan_fingerprint
from lengthwise.core.fixed import FixedBatches, lay_out
from lengthwise.core.histogram import LengthHistogram, check_lengths, exact_sum
from lengthwise.core.limits import require_int
from lengthwise.core.order import OrderRule, arrange
from lengthwise.core.packing import deal, pack_groups, sort_in_windows
from lengthwise.core.pool import size_pool
from lengthwise.core.prepare import Prepared, prepare
from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.replicas import fit_to_replicas
from lengthwise.core.shuffle import shuffle_samples
from lengthwise.core.stats import PlanStats
from lengthwise.core.threads import default_threads
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.limits import Int64Array


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The batches of one epoch, for all replicas: a value of (lengths, config, epoch, replicas).

    Step ``s`` of replica ``r`` is batch ``s * num_replicas + r``.

    Attributes:
        config: the config, with its boundaries found.
        epoch: which epoch, from 0.
        num_replicas: replicas that run one batch each in every step.
        fingerprint: names data, config, replica count and planning rules; the same every epoch.
        source: the batches, stored or computed when asked for.
        policy_counts: what policies changed or left out, by the names of :class:`PlanStats`.
        num_threads: threads that may work out batches; no result depends on it.
        version: of the planning rules.
    """

    config: BatchingConfig
    epoch: int
    num_replicas: int
    fingerprint: str
    source: Batches | FixedBatches
    policy_counts: dict[str, int] = field(repr=False)
    num_threads: int = field(default=1, repr=False)
    version: int = PLAN_VERSION

    @property
    def num_batches(self) -> int:
        """Batches of the epoch, over all replicas: ``num_steps * num_replicas``."""
        return len(self.source)

    @property
    def num_steps(self) -> int:
        """Batches of each replica."""
        return self.num_batches // self.num_replicas

    def __len__(self) -> int:
        """Number of batches."""
        return self.num_batches

    def __iter__(self) -> Iterator[Int64Array]:
        """All batches in order; int64 sample indices each."""
        return (self.batch(index) for index in range(self.num_batches))

    def batch(self, index: int) -> Int64Array:
        """Sample indices of batch ``index``; int64, shape (batch size,).

        Raises:
            IndexError: there is no such batch.
        """
        if not 0 <= index < self.num_batches:
            raise IndexError(f"batch {index} of a plan of {self.num_batches:,} batches")
        return self.source.batch(index)

    def for_rank(self, rank: int) -> RankBatches:
        """The batches that one replica runs, as a sequence of ``num_steps`` index arrays.

        Raises:
            ConfigError: there is no such replica.
        """
        rank = require_int("rank", rank, least=0, most=2**31)
        if rank >= self.num_replicas:
            raise ConfigError(f"rank must be below num_replicas ({self.num_replicas}), got {rank}")
        return RankBatches(self, rank)

    @cached_property
    def batches(self) -> Batches:
        """All batches as flat arrays (plans of fixed sizes compute them here, once)."""
        if isinstance(self.source, Batches):
            return self.source
        return self.source.table(self.num_threads)

    @cached_property
    def stats(self) -> PlanStats:
        """Exact totals of the plan."""
        batches = self.batches
        return PlanStats(
            num_samples=int(batches.sizes.sum()),
            num_batches=self.num_batches,
            num_steps=self.num_steps,
            real_tokens=exact_sum(batches.tokens),
            padded_tokens=exact_sum(batches.padded_tokens),
            max_tokens=self.config.limits.max_tokens,
            **self.policy_counts,
        )


@dataclass(frozen=True, slots=True)
class RankBatches:
    """One replica's batches of a plan: a sequence of int64 index arrays."""

    plan: EpochPlan
    rank: int

    def __len__(self) -> int:
        """Number of steps."""
        return self.plan.num_steps

    def __getitem__(self, step: int) -> Int64Array:
        """Sample indices of this replica's batch in ``step``."""
        if not -len(self) <= step < len(self):
            raise IndexError(f"step {step} of {len(self):,}")
        return self.plan.batch(step % len(self) * self.plan.num_replicas + self.rank)

    def __iter__(self) -> Iterator[Int64Array]:
        """All batches in order."""
        return (self[step] for step in range(len(self)))


class Planner:
    """Keeps the one-off set-up of a data set, so that planning an epoch is fast.

    Args:
        lengths: tokens of each sample, shape (N,), any integer type.
        config: every choice.
        num_replicas: replicas that run one batch each in every step.
        num_threads: threads for planning; default: the usable processors, at most 8. Plans do not
            depend on it.

    Attributes:
        config: the config with its boundaries found.
        lengths: what each sample counts as (cut under ``oversize="truncate"``); int64, shape (N,).
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
    ) -> None:
        """Check, group and measure the lengths; see the class."""
        self.num_replicas = require_int("num_replicas", num_replicas, least=1, most=2**31)
        threads = default_threads() if num_threads is None else num_threads
        self.num_threads = require_int("num_threads", threads, least=1, most=4096)
        values = check_lengths(lengths)
        self._prepared = prepare(values, config, self.num_threads)
        self.config = self._prepared.config
        self.lengths = self._prepared.lengths
        self.lengths_hash = lengths_fingerprint(values)
        self.fingerprint = plan_fingerprint(
            self.lengths_hash, self.config.to_dict(), self.num_replicas
        )
        self._rule = OrderRule(
            order=self.config.order,
            balance=self.config.balance,
            num_replicas=self.num_replicas,
            accumulation_steps=self.config.accumulation_steps,
        )
        self._floors = self._prepared.padding_floors()
        fixed = self.config.batch_sizing == "fixed"
        self._layout = lay_out(self._prepared, self.num_replicas) if fixed else None
        self._pool_slots = _pool_slots(self._prepared)

    def plan(self, epoch: int) -> EpochPlan:
        """The plan of ``epoch`` (from 0): the same on every rank, without communication."""
        epoch = require_int("epoch", epoch, least=0)
        if self._layout is not None:
            source = FixedBatches.of_epoch(self._prepared, self._layout, epoch, self.num_replicas)
            counts = {
                "num_split_batches": self._layout.num_split,
                "num_dropped_batches": self._layout.num_dropped_batches,
                "num_dropped_samples": self._layout.num_dropped_samples,
            }
            return self._wrap(epoch, source, counts)
        packed = self._pack(epoch)
        floors = self._floors[self._groups_of(packed)]
        dealt = fit_to_replicas(packed, floors, self._prepared, self.num_replicas, epoch)
        counts = {
            "num_split_batches": dealt.num_split,
            "num_dropped_batches": len(dealt.dropped),
            "num_dropped_samples": int(dealt.dropped.sizes.sum()),
        }
        return self._wrap(epoch, self._arrange(dealt.batches, epoch), counts)

    def _pack(self, epoch: int) -> Batches:
        prepared, config, threads = self._prepared, self.config, self.num_threads
        words, offsets, limits = prepared.words, prepared.offsets, config.limits
        if config.strategy == "sorted":
            return pack_groups(words, offsets[[0, -1]], np.zeros(1, np.int64), limits, threads)
        words = shuffle_samples(words, offsets, config.seed, epoch, threads)
        if self._pool_slots is not None:
            return deal(
                words,
                offsets,
                self._pool_slots,
                limits,
                seed=config.seed,
                epoch=epoch,
                num_threads=threads,
            )
        if config.window_size is not None:
            sort_in_windows(words, offsets, config.window_size, threads)
        return pack_groups(words, offsets, self._floors, limits, threads)

    def _groups_of(self, batches: Batches) -> Int64Array:
        """The group that each batch was packed from; 0 where batches cross groups."""
        if self._prepared.by_length:
            return np.zeros(len(batches), np.int64)
        return np.searchsorted(self._prepared.offsets, batches.starts, side="right") - 1

    def _arrange(self, batches: Batches, epoch: int) -> Batches:
        places = arrange(
            batches.tokens,
            batches.sizes,
            batches.padded_tokens,
            self._groups_of(batches),
            rule=self._rule,
            key=stream_key(self.config.seed, epoch, Purpose.BATCHES),
        )
        return batches.select(places)

    def _wrap(
        self, epoch: int, source: Batches | FixedBatches, counts: dict[str, int]
    ) -> EpochPlan:
        oversize = int(self._prepared.oversize.size)
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


def _pool_slots(prepared: Prepared) -> Int64Array | None:
    if prepared.config.strategy != "pooled":
        return None
    target = prepared.config.target_efficiency
    counts = np.diff(prepared.offsets)
    histogram = LengthHistogram(prepared.tops, counts)
    return size_pool(histogram, prepared.config.limits, target).slots


def build_plan(
    lengths: npt.ArrayLike,
    config: BatchingConfig,
    *,
    epoch: int = 0,
    num_replicas: int = 1,
    num_threads: int | None = None,
) -> EpochPlan:
    """Plan one epoch. For several epochs keep a :class:`Planner`: its set-up is done once.

    Args:
        lengths: tokens of each sample, shape (N,).
        config: every choice.
        epoch: which epoch, from 0.
        num_replicas: replicas that run one batch each in every step.
        num_threads: threads for planning; the plan does not depend on it.

    Returns:
        The plan: equal on every rank, machine and platform for equal arguments.

    Raises:
        BadLengthError, OversizeError, PlanError: as :class:`Planner`.
    """
    planner = Planner(lengths, config, num_replicas=num_replicas, num_threads=num_threads)
    return planner.plan(epoch)
