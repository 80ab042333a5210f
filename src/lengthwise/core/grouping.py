"""Samples sorted into groups, as plans of each kind need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.index import SampleIndex, index_by_group
from lengthwise.core.threads import run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.stored import StoredLengths

_CHUNK = 1 << 17
"""Samples whose groups are looked up at once, so that what that takes stays in cache."""
_TABLE_LIMIT = 1 << 24
"""Lengths below this find their group in a table; above it, by bisection."""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Which group a sample is in.

    Attributes:
        lengths: group k has lengths from ``lengths[k]`` to ``lengths[k + 1] - 1``; (G + 1,).
        top: longest length that is planned at all.
        shards: samples before each shard, and all of them; (K + 1,).
    """

    lengths: Int64Array
    top: int
    shards: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Samples by group; see :class:`lengthwise.core.prepare.Prepared`.

    Attributes:
        words: the samples.
        offsets: where groups begin and end.
        kept: which of the groups that there might be have samples.
        index: of fixed sizes, where samples lie.
    """

    words: npt.NDArray[Any]
    offsets: Int64Array
    kept: Int64Array
    index: SampleIndex | None = None


def group_samples(
    values: StoredLengths,
    histogram: LengthHistogram,
    config: BatchingConfig,
    edges: Edges,
    num_threads: int,
) -> Groups:
    """Sort samples by group; empty groups vanish."""
    group_of, num_groups = _grouper(edges.lengths, edges.top), edges.lengths.size - 1
    if config.batch_sizing == "fixed":
        words, kept, index = index_by_group(values, group_of, num_groups, edges.shards, num_threads)
        return Groups(words, np.append(index.blocks[:, 0], words.size), kept, index)
    if config.shards_per_group is not None:  # each shard group sorts its own
        places = np.searchsorted(histogram.lengths, np.minimum(edges.lengths, edges.top + 1))
        totals = np.diff(np.concatenate(([0], np.cumsum(histogram.counts)))[places])
        kept = np.flatnonzero(totals)
        return Groups(np.empty(0, np.uint32), np.append(0, np.cumsum(totals[kept])), kept)
    word = np.dtype(np.uint32 if config.strategy == "pooled" else np.uint64)
    return _group(values, group_of, num_groups, word, num_threads)


def _group(
    values: StoredLengths,
    group_of: Callable[[Int64Array], npt.NDArray[np.int32]],
    num_groups: int,
    word: np.dtype[Any],
    num_threads: int,
) -> Groups:
    """A stable counting sort by group."""
    from lengthwise.core.kernels.partition import scatter_groups

    size = max(_CHUNK, -(-values.size // num_threads))
    starts = range(0, values.size, size)

    def chunks(start: int) -> Iterator[tuple[int, Int64Array]]:
        for first in range(start, min(start + size, values.size), _CHUNK):
            yield first, values.read(first, min(first + _CHUNK, start + size))

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
    return Groups(words, np.append(begins[kept], words.size).astype(np.int64), kept)


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
