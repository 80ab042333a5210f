"""Samples by group in two bytes each: a stable counting sort by blocks.

Inside a group samples keep the order of the data set, so those of one block of 2**16 samples lie
side by side. What tells them apart is the last two bytes of their index; the block is found from
where it begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.threads import run_all

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.stored import StoredLengths

BLOCK_BITS = 16
"""A block holds ``2**16`` samples: their numbers inside it take two bytes."""
_BLOCK = 1 << BLOCK_BITS
_TASK = 16
"""Blocks of a task."""


@dataclass(frozen=True, slots=True, eq=False)
class SampleIndex:
    """Where to find the samples of a group.

    Attributes:
        blocks: where each block of the data set begins in the words, by group; (G, blocks + 1).
        shards: where each shard begins in the words, by group; (G, shards + 1).
        marks: the block that every 2**16th word is of; int32, and the last block at the end. So
            that a search for a word's block begins near it.
    """

    blocks: Int64Array
    shards: Int64Array
    marks: npt.NDArray[np.int32]


def index_by_group(
    lengths: StoredLengths,
    group_of: Callable[[Int64Array], npt.NDArray[np.int32]],
    num_groups: int,
    shard_edges: Int64Array,
    num_threads: int,
) -> tuple[npt.NDArray[np.uint16], Int64Array, SampleIndex]:
    """Sort samples by group. Empty groups vanish.

    Besides the lengths, which are read twice and in order, it holds the result, and a table of
    groups and blocks.

    Args:
        lengths: of all samples.
        group_of: from lengths to groups; -1 leaves a sample out.
        num_groups: groups there may be.
        shard_edges: samples before each shard, and all of them; shape (K + 1,).
        num_threads: threads to use; the result does not depend on it.

    Returns:
        The words, uint16; which groups there are; where their samples lie.
    """
    from lengthwise.core.kernels.partition import count_before, scatter_groups

    num_blocks = -(-lengths.size // _BLOCK)
    places = np.zeros((num_blocks + 1, num_groups), np.int64)

    def part(block: int) -> tuple[Int64Array, npt.NDArray[np.int32]]:
        found = lengths.read(block * _BLOCK, (block + 1) * _BLOCK)
        return found, group_of(found)

    def count(first: int) -> None:
        for block in range(first, min(first + _TASK, num_blocks)):
            groups = part(block)[1]
            places[block] = np.bincount(groups + 1, minlength=num_groups + 1)[1:]

    def scatter(first: int) -> None:
        for block in range(first, min(first + _TASK, num_blocks)):
            scatter_groups(*part(block), block * _BLOCK, places[block].copy(), words)

    run_all([partial(count, first) for first in range(0, num_blocks, _TASK)], num_threads)
    totals = places.sum(axis=0)
    places[1:] = np.cumsum(places[:-1], axis=0)
    places[0] = 0
    places += np.cumsum(totals) - totals
    words = np.empty(int(totals.sum()), np.uint16)
    run_all([partial(scatter, first) for first in range(0, num_blocks, _TASK)], num_threads)
    kept = np.flatnonzero(totals)
    blocks = np.ascontiguousarray(places.T[kept])
    shards = np.empty((kept.size, shard_edges.size), np.int64)
    count_before(words, blocks, shard_edges, shards)
    return words, kept, SampleIndex(blocks, shards, _marks(blocks, words.size))


def _marks(blocks: Int64Array, num_words: int) -> npt.NDArray[np.int32]:
    places = np.arange(0, num_words, _BLOCK)
    group_of = np.searchsorted(blocks[:, 0], places, side="right") - 1
    found = [
        np.searchsorted(blocks[group], places[group_of == group], side="right") - 1
        for group in range(len(blocks))
    ]
    return np.concatenate([*found, [blocks.shape[1] - 2]]).astype(np.int32)
