"""An epoch's plan: its batches, steps and totals."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lengthwise.core.batches import Batches
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.histogram import exact_sum
from lengthwise.core.limits import require_int
from lengthwise.core.stats import PlanStats
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.fixed import FixedBatches
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
    def num_samples(self) -> int:
        """Samples of the plan; known without laying it out."""
        if isinstance(self.source, Batches):
            return int(self.source.sizes.sum())
        return self.source.prepared.num_samples - self.policy_counts["num_dropped_samples"]

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
