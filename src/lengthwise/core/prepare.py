"""The one-off set-up of a planner: samples sorted into the groups that are shuffled apart.

A group is a bucket, or the whole data set, or (where the order by length matters) one length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.bucketing import validate_boundaries
from lengthwise.core.histogram import LengthHistogram, check_lengths
from lengthwise.core.threads import run_all
from lengthwise.errors import OversizeError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig, Oversize
    from lengthwise.core.limits import BatchLimits, Int64Array

_CHUNK = 1 << 17
"""Samples whose groups are looked up at once, so that what that takes stays in cache."""
_TABLE_LIMIT = 1 << 24
"""Lengths below this find their group in a table; above it, by bisection."""
_SHOWN = 5
_BY_LENGTH = ("sorted", "pooled")
"""Strategies that take samples in the order of their length: a group is one length."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Samples by group, and what a policy left out.

    Attributes:
        config: the config, with ``num_buckets`` replaced by boundaries.
        lengths: what each sample counts as, in tokens (cut under ``truncate``); int64, shape (N,).
        words: every sample that is planned, group after group in the data set's order; shape (M,).
            ``length << 32 | index``, uint64, where packing a group takes lengths; where it does
            not (one length a group, or fixed sizes) the index alone, uint32.
        offsets: group g is ``words[offsets[g] : offsets[g + 1]]``; int64, shape (G + 1,).
        tops: longest length in each group; int64, shape (G,).
        oversize: indices of the samples longer than the budget; int64.
    """

    config: BatchingConfig
    lengths: Int64Array
    words: npt.NDArray[Any]
    offsets: Int64Array
    tops: Int64Array
    oversize: Int64Array

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


def prepare(lengths: npt.ArrayLike, config: BatchingConfig, num_threads: int) -> Prepared:
    """Check lengths, apply the oversize policy, find boundaries, and group the samples.

    Raises:
        BadLengthError: a length is not a whole number of at least 1.
        OversizeError: a sample fits no batch and the policy is ``"error"``.
        PlanError: there is nothing to plan.
    """
    values = check_lengths(lengths)
    if values.size == 0:
        raise PlanError("there are no samples to plan: lengths is empty")
    if values.size >= 2**32 or int(values.max()) >= 2**32:
        raise PlanError(
            f"a plan holds fewer than 2**32 samples of fewer than 2**32 tokens; got "
            f"{values.size:,} samples, the longest of {int(values.max()):,} tokens. "
            f"Plan the data set in parts."
        )
    most = config.limits.longest_allowed
    oversize = find_oversize(values, config.limits, config.oversize)
    if oversize.size and config.oversize == "truncate":
        values = np.minimum(values, most)
    histogram = LengthHistogram.from_lengths(values)
    top = int(histogram.lengths[histogram.lengths <= most].max(initial=0))
    edges, config = _group_edges(histogram, config, top)
    if oversize.size and config.oversize == "single":
        top = int(histogram.lengths[-1])
        if config.strategy not in _BY_LENGTH:
            edges = np.append(edges[edges <= most], [most + 1, top + 1])
    index_alone = config.strategy == "pooled" or config.batch_sizing == "fixed"
    word = np.dtype(np.uint32 if index_alone else np.uint64)
    words, offsets, kept = _group(values, edges, top, word, num_threads)
    last = np.searchsorted(histogram.lengths, np.minimum(edges[1:], top + 1)) - 1
    tops = histogram.lengths[last[kept]]
    return Prepared(config, values, words, offsets, tops, oversize)


def find_oversize(values: Int64Array, limits: BatchLimits, policy: Oversize) -> Int64Array:
    """Indices of the samples that fit no batch.

    Raises:
        OversizeError: there are some and the policy is ``"error"``; lists the first ones.
        PlanError: the policy is ``"drop"`` and nothing would be left.
    """
    most = limits.longest_allowed
    if int(values.max()) <= most:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(values > most)
    if policy == "error":
        raise OversizeError(_oversize_message(values, rows, limits))
    if policy == "drop" and rows.size == values.size:
        raise PlanError(f"oversize='drop' leaves nothing: all {rows.size:,} samples are too long")
    return rows


def _oversize_message(values: Int64Array, rows: Int64Array, limits: BatchLimits) -> str:
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


def _group(
    values: Int64Array, edges: Int64Array, top: int, word: np.dtype[Any], num_threads: int
) -> tuple[npt.NDArray[Any], Int64Array, Int64Array]:
    """A stable counting sort by group; empty groups vanish.

    Returns:
        The words, where groups begin and end, and which groups those are.
    """
    from lengthwise.core.kernels.partition import scatter_groups

    group_of = _grouper(edges, top)
    num_groups = edges.size - 1
    size = max(_CHUNK, -(-values.size // num_threads))
    starts = range(0, values.size, size)

    def chunks(start: int) -> Iterator[tuple[int, Int64Array]]:
        for first in range(start, min(start + size, values.size), _CHUNK):
            yield first, values[first : min(first + _CHUNK, start + size)]

    def count(start: int) -> Int64Array:
        counts = np.zeros(num_groups + 1, np.int64)
        for _, part in chunks(start):
            counts += np.bincount(group_of(part) + 1, minlength=num_groups + 1)
        return counts[1:]

    def scatter(start: int, cursor: Int64Array) -> None:
        for first, part in chunks(start):
            scatter_groups(part, group_of(part), first, cursor, words)

    counts = np.stack(run_all([partial(count, start) for start in starts], num_threads))
    totals = counts.sum(axis=0)
    begins = np.cumsum(totals) - totals
    words = np.empty(int(totals.sum()), word)
    cursors = begins + np.cumsum(counts, axis=0) - counts
    run_all([partial(scatter, start, cursors[i]) for i, start in enumerate(starts)], num_threads)
    kept = np.flatnonzero(totals)
    return words, np.append(begins[kept], words.size).astype(np.int64), kept


def _grouper(edges: Int64Array, top: int) -> Callable[[Int64Array], npt.NDArray[np.int32]]:
    """A function from lengths to group numbers, -1 above ``top``."""
    if top < _TABLE_LIMIT:
        places = np.searchsorted(edges, np.arange(top + 2), side="right") - 1
        table = places.astype(np.int32)
        table[top + 1] = -1
        return lambda part: table[np.minimum(part, top + 1)]

    def bisect(part: Int64Array) -> npt.NDArray[np.int32]:
        places = (np.searchsorted(edges, part, side="right") - 1).astype(np.int32)
        places[part > top] = -1
        return places

    return bisect
