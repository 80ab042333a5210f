"""Which batch comes next in a plan, and how many tokens it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.histogram import exact_sum
from lengthwise.core.plan import EpochPlan
from lengthwise.core.resharding import deal_rest
from lengthwise.errors import ConfigError
from lengthwise.loader.batch_sampler import BucketBatchSampler
from lengthwise.loader.distributed import Replica

if TYPE_CHECKING:
    from lengthwise.core.batches import Batches
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.planner import Planner
    from lengthwise.loader.progress import Iteration

NUM_CLASSES = 6
"""Length classes where neither the caller nor the plan names boundaries."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is known of a batch.

    Attributes:
        epoch: its epoch; None without a plan.
        bucket: the class of its mean length.
        real_tokens: of the whole step: of all replicas' batches where a plan tells them.
        padded_tokens: likewise.
        own_real_tokens: of this replica's batch.
    """

    epoch: int | None
    bucket: int
    real_tokens: int
    padded_tokens: int
    own_real_tokens: int


class Schedule:
    """The steps of the epoch that runs, of a plan, a planner or a sampler.

    Args:
        source: an :class:`~lengthwise.EpochPlan` (that epoch alone), a planner, or a
            :class:`~lengthwise.loader.BucketBatchSampler`, which also tells where a resumed run
            stands.
        rank: this replica; only where the source is no sampler.
        boundaries: length classes; by default the plan's, or classes of equally many batches.
    """

    def __init__(
        self,
        source: EpochPlan | Planner | BucketBatchSampler,
        rank: int | None,
        boundaries: Int64Array | None,
    ) -> None:
        """Find the epoch that runs, or comes first."""
        self.source = source
        self.sampler = source if isinstance(source, BucketBatchSampler) else None
        if self.sampler is not None:
            self.replica = Replica(self.sampler.rank, self.sampler.num_replicas)
        else:
            self.replica = Replica.of(rank, source.num_replicas)
        self._iteration: Iteration | None = None
        first = source.epoch if isinstance(source, EpochPlan) else 0
        epoch = first if self.sampler is None else self.sampler.epoch
        batches = self._batches(epoch)
        self.boundaries = boundaries if boundaries is not None else self._classes(batches)
        self._begin(epoch, batches, 0)

    def _begin(self, epoch: int, batches: Batches, step: int) -> None:
        """Go to a step of an epoch's plan."""
        self._set(epoch, batches, step)
        self.epoch_tokens = exact_sum(batches.tokens)
        self.efficiency = self.epoch_tokens / exact_sum(batches.padded_tokens)

    def _set(self, epoch: int, batches: Batches, step: int) -> None:
        count = self.replica.num_replicas
        self.epoch = epoch
        self.next_step = step
        self.num_steps = len(batches) // count
        own = slice(self.replica.rank, None, count)
        self._real = batches.tokens.reshape(-1, count).sum(1)
        self._padded = batches.padded_tokens.reshape(-1, count).sum(1)
        self._own_real = batches.tokens[own]
        mean_lengths = batches.tokens // batches.sizes
        self._buckets = bucket_of(mean_lengths[own], self.boundaries).tolist()
        self._left = exact_sum(self._real[step:])

    def _classes(self, batches: Batches) -> Int64Array:
        edges = self.source.config.boundaries
        if edges is not None:
            return np.asarray(edges, np.int64)
        lengths = batches.tokens // batches.sizes
        quantiles = np.quantile(lengths, np.linspace(0, 1, NUM_CLASSES + 1), method="lower")
        quantiles[-1] += 1
        return np.unique(quantiles.astype(np.int64))

    def _batches(self, epoch: int) -> Batches:
        if isinstance(self.source, EpochPlan):
            if epoch != self.source.epoch:
                raise ConfigError(
                    f"the monitor has the plan of epoch {self.source.epoch} and was asked for "
                    f"epoch {epoch}; give it the sampler or the planner instead"
                )
            return self.source.batches
        planner = (
            self.source.planner if isinstance(self.source, BucketBatchSampler) else self.source
        )
        return planner.plan(epoch).batches

    def _follow(self, sampler: BucketBatchSampler) -> None:
        """Where the sampler's iteration began, if that is a new one."""
        iteration = sampler.iteration
        if iteration is None or iteration is self._iteration:
            return
        self._iteration = iteration
        begin = iteration.begin
        earlier, step = begin.split(self.replica.num_replicas)
        if earlier:
            rest = deal_rest(sampler.planner, begin.epoch, earlier)
            self._set(begin.epoch, rest.batches(sampler.planner.num_threads), step)
        else:
            self._begin(begin.epoch, self._batches(begin.epoch), step)

    def batch(self, index: int | None) -> Batch:
        """The batch of a step.

        Args:
            index: a batch of this epoch's plan; None for the next one of this replica.

        Raises:
            ConfigError: no such batch, or the plan has come to its end.
        """
        if self.sampler is not None:
            self._follow(self.sampler)
        if self.next_step == self.num_steps:
            self._begin(self.epoch + 1, self._batches(self.epoch + 1), 0)
        step = self.next_step if index is None else self._step_of(index)
        if step == self.next_step:
            self._left -= int(self._real[step])
        else:
            self._left = exact_sum(self._real[step + 1 :])
        self.next_step = step + 1
        return Batch(
            self.epoch,
            self._buckets[step],
            int(self._real[step]),
            int(self._padded[step]),
            int(self._own_real[step]),
        )

    def remaining_tokens(self, num_epochs: int) -> int:
        """Real tokens of all replicas until ``num_epochs`` epochs are done."""
        return self._left + max(0, num_epochs - self.epoch - 1) * self.epoch_tokens

    def _step_of(self, index: int) -> int:
        step, rank = divmod(index, self.replica.num_replicas)
        if rank != self.replica.rank or not 0 <= step < self.num_steps:
            raise ConfigError(
                f"batch {index} of epoch {self.epoch} is none of replica {self.replica.rank} of "
                f"{self.replica.num_replicas}: step s has batch s * num_replicas + rank, and there "
                f"are {self.num_steps:,} steps"
            )
        return step


def bucket_of(lengths: Any, boundaries: Int64Array) -> Any:
    """The class of each length; below the first and above the last boundary, the nearest."""
    places = np.searchsorted(boundaries, lengths, side="right") - 1
    return np.clip(places, 0, boundaries.size - 2)
