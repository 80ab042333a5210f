"""The one-off set-up of a planner: samples sorted into the groups that are shuffled apart.

A group is a bucket, or the whole data set, or (where the order by length matters) one length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.bucketing import validate_boundaries
from lengthwise.core.grouping import Edges, group_samples
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.shards import mean_lengths
from lengthwise.core.stored import StoredLengths, checked_shard_sizes, count_lengths
from lengthwise.errors import ConfigError, OversizeError, PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig, Oversize
    from lengthwise.core.index import SampleIndex
    from lengthwise.core.limits import BatchLimits, Int64Array

_SHOWN = 5
_BY_LENGTH = ("sorted", "pooled")
"""Strategies that take samples in the order of their length: a group is one length."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Samples by group, and what a policy left out.

    Attributes:
        config: the config, with ``num_buckets`` replaced by boundaries.
        lengths: what each sample counts as, in tokens (cut under ``truncate``).
        words: every sample that is planned, group after group in the data set's order; shape (M,).
            ``length << 32 | index``, uint64, where packing a group takes lengths; where it does
            not (one length a group) the index alone, uint32; for fixed sizes its last two bytes,
            uint16. Empty where shards are planned group by group: each has words of its own.
        offsets: group g is ``words[offsets[g] : offsets[g + 1]]``; int64, shape (G + 1,).
        tops: longest length in each group; int64, shape (G,).
        oversize: indices of the samples longer than the budget; int64.
        shard_edges: samples before each shard, and all; int64, shape (K + 1,). One shard where the
            plan takes no notice of shards.
        shard_means: the mean length of each shard's samples, where the plan looks at them; (K,).
        index: of fixed sizes, where samples lie; else None.
    """

    config: BatchingConfig
    lengths: StoredLengths
    words: npt.NDArray[Any]
    offsets: Int64Array
    tops: Int64Array
    oversize: Int64Array
    shard_edges: Int64Array
    shard_means: npt.NDArray[np.float64]
    index: SampleIndex | None = None

    @property
    def num_samples(self) -> int:
        """Samples that are planned."""
        return int(self.offsets[-1])

    @property
    def by_length(self) -> bool:
        """Whether each group is one length, so that groups may be packed across."""
        return self.config.strategy in _BY_LENGTH

    def padding_floors(self) -> Int64Array:
        """Tokens that batches of each group are padded to at least; int64, shape (G,)."""
        limits = self.config.limits
        if not self.config.pad_to_boundary:
            return np.zeros_like(self.tops)
        return np.where(self.tops <= limits.longest_allowed, limits.padded_lengths(self.tops), 0)


def prepare(
    lengths: npt.ArrayLike,
    config: BatchingConfig,
    num_threads: int,
    shard_sizes: npt.ArrayLike | None = None,
) -> Prepared:
    """Check lengths, apply the oversize policy, find boundaries, and group the samples.

    Raises:
        BadLengthError: a length is not a whole number of at least 1.
        OversizeError: a sample fits no batch and the policy is ``"error"``.
        PlanError: there is nothing to plan.
        ConfigError: ``shards_per_group`` is set, and nothing says what the shards are.
    """
    values = StoredLengths.of(lengths)
    histogram = _counted(values, num_threads)
    most = config.limits.longest_allowed
    oversize = np.empty(0, np.int64)
    if histogram.longest > most:
        oversize = find_oversize(values, config.limits, config.oversize)
    if oversize.size and config.oversize == "truncate":
        values = values.at_most(most)
        cut = np.minimum(histogram.lengths, most)
        histogram = LengthHistogram.from_counts(cut.tolist(), histogram.counts.tolist())
    top = int(histogram.lengths[histogram.lengths <= most].max(initial=0))
    edges, config = _group_edges(histogram, config, top)
    if oversize.size and config.oversize == "single":
        top = int(histogram.lengths[-1])
        if config.strategy not in _BY_LENGTH:
            edges = np.append(edges[edges <= most], [most + 1, top + 1])
    shard_edges = _shard_edges(values, config, shard_sizes)
    groups = group_samples(values, histogram, config, Edges(edges, top, shard_edges), num_threads)
    last = np.searchsorted(histogram.lengths, np.minimum(edges[1:], top + 1)) - 1
    return Prepared(
        config=config,
        lengths=values,
        words=groups.words,
        offsets=groups.offsets,
        tops=histogram.lengths[last[groups.kept]],
        oversize=oversize,
        shard_edges=shard_edges,
        shard_means=_shard_means(values, config, shard_edges),
        index=groups.index,
    )


def _counted(values: StoredLengths, num_threads: int) -> LengthHistogram:
    """The lengths checked and counted, if a plan can hold so many and so long ones."""
    if values.size == 0:
        raise PlanError("there are no samples to plan: lengths is empty")
    found = f"{values.size:,} samples"
    histogram = None
    if values.size < 2**32:
        histogram = count_lengths(values, num_threads)
        found += f", the longest of {histogram.longest:,} tokens"
    if histogram is None or histogram.longest >= 2**32:
        raise PlanError(
            f"a plan holds fewer than 2**32 samples of fewer than 2**32 tokens; got {found}. Plan "
            f"the data set in parts."
        )
    return histogram


def _shard_edges(
    values: StoredLengths, config: BatchingConfig, sizes: npt.ArrayLike | None
) -> Int64Array:
    if config.shards_per_group is None:
        return np.array([0, values.size], np.int64)
    if sizes is None and not values.in_shards:
        raise ConfigError(
            "shards_per_group needs to know the shards: give lengths as a list of arrays, one a "
            "shard, or shard_sizes=[...], the samples of each shard"
        )
    return np.append(0, np.cumsum(checked_shard_sizes(sizes, values)))


def _shard_means(
    values: StoredLengths, config: BatchingConfig, edges: Int64Array
) -> npt.NDArray[np.float64]:
    return np.zeros(1) if config.shards_per_group is None else mean_lengths(values, edges)


def find_oversize(lengths: npt.ArrayLike, limits: BatchLimits, policy: Oversize) -> Int64Array:
    """Indices of the samples that fit no batch.

    Raises:
        OversizeError: there are some and the policy is ``"error"``; lists the first ones.
        PlanError: the policy is ``"drop"`` and nothing would be left.
    """
    values, most = StoredLengths.of(lengths), limits.longest_allowed
    found = [first + np.flatnonzero(part > most) for first, part in values.parts()]
    rows = np.concatenate([np.empty(0, np.int64), *found])
    if rows.size and policy == "error":
        raise OversizeError(_oversize_message(values, rows, limits))
    if rows.size and policy == "drop" and rows.size == values.size:
        raise PlanError(f"oversize='drop' leaves nothing: all {rows.size:,} samples are too long")
    return rows


def _oversize_message(values: StoredLengths, rows: Int64Array, limits: BatchLimits) -> str:
    shown = ", ".join(f"row {row:,} ({values[row]:,} tokens)" for row in rows[:_SHOWN])
    more = f" and {rows.size - _SHOWN:,} more" if rows.size > _SHOWN else ""
    return (
        f"{rows.size:,} samples are longer than a batch may be ({limits.longest_allowed:,} tokens "
        f"under max_tokens={limits.max_tokens:,}): {shown}{more}. Raise max_tokens, or choose "
        f"oversize='drop', 'truncate' or 'single'."
    )


def _group_edges(
    histogram: LengthHistogram, config: BatchingConfig, top: int
) -> tuple[Int64Array, BatchingConfig]:
    """Rising edges of the groups, and the config with its boundaries found."""
    if config.strategy in _BY_LENGTH:
        present = histogram.lengths
        return np.append(present, int(present[-1]) + 1), config
    if config.num_buckets is not None:
        histogram = histogram.between(0, top + 1)
        if not histogram.num_samples:
            return np.array([0, top + 1], np.int64), config
        best = optimize_boundaries(
            histogram,
            config.limits,
            num_buckets=config.num_buckets,
            pad_to_boundary=config.pad_to_boundary,
        )
        config = config.with_boundaries(best.boundaries)
    if config.boundaries is None:
        return np.array([0, top + 1], np.int64), config
    short = int(histogram.lengths[0])
    if short <= top:
        validate_boundaries(config.boundaries, short, top)
    return np.asarray(config.boundaries, np.int64), config
