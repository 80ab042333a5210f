"""A new random order inside every group, at memory speed.

Small groups are shuffled while they are copied. A large one is first dealt to blocks that fit the
processor's cache, each sample to a uniformly random block, and every block is then shuffled
(Rao 1961, Sandelius 1962): uniform like a plain shuffle, without its cache misses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.threads import run_all

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Words = npt.NDArray[Any]

_TASK = 1 << 17
"""Samples that one task shuffles, about; fixed, since streams depend on it."""
_LARGE = 1 << 18
"""Groups above this are shuffled through blocks."""
_BLOCK = 1 << 15
"""Samples in a block, about: 256 KiB of words, half of a usual second-level cache."""
_MOST_BLOCKS = 1 << 13
_DRAWS = 1 << 20
"""Samples of one scattering task."""


def shuffle_samples(
    words: Words, offsets: Int64Array, seed: int, epoch: int, num_threads: int
) -> Words:
    """Return the words with every group in a new random order.

    Args:
        words: samples, group after group, shape (M,).
        offsets: where groups begin and end, shape (G + 1,).
        seed: the plan's seed.
        epoch: the epoch; with the seed and the group's number it decides the order.
        num_threads: threads to use; the result does not depend on it.
    """
    from lengthwise.core.kernels.partition import shuffle_groups

    out = np.empty_like(words)
    key = np.uint64(stream_key(seed, epoch, Purpose.SAMPLES))
    sizes = np.diff(offsets)
    large = np.flatnonzero(sizes > _LARGE)
    tasks: list[Callable[[], None]] = [
        partial(shuffle_groups, words, out, offsets, first, last, key)
        for first, last in _small_runs(offsets, large)
    ]
    run_all(tasks, num_threads)
    for group in large:
        lo, hi = int(offsets[group]), int(offsets[group + 1])
        group_key = stream_key(seed, epoch, Purpose.BUCKETS, int(group))
        _shuffle_large(words[lo:hi], out[lo:hi], group_key, num_threads)
    return out


def _small_runs(offsets: Int64Array, large: Int64Array) -> list[tuple[int, int]]:
    """Runs of small groups of about a task's size each."""
    runs = []
    stops = [*large.tolist(), offsets.size - 1]
    first = 0
    for stop in stops:
        while first < stop:
            goal = offsets[first] + _TASK
            last = int(np.searchsorted(offsets, goal, side="left"))
            last = min(max(last, first + 1), stop)
            runs.append((first, last))
            first = last
        first = stop + 1
    return runs


def _shuffle_large(source: Words, out: Words, key: int, num_threads: int) -> None:
    from lengthwise.core.kernels.partition import (
        count_blocks,
        scatter_blocks,
        shuffle_blocks,
    )

    num_blocks = min(_MOST_BLOCKS, 1 << max(1, (source.size // _BLOCK).bit_length()))
    shift = 64 - (num_blocks.bit_length() - 1)
    draw_key, block_key = np.uint64(key), np.uint64(stream_key(key, 0, Purpose.SAMPLES))
    starts = list(range(0, source.size, _DRAWS))
    counts = np.zeros((len(starts), num_blocks), np.int64)
    run_all(
        [
            partial(count_blocks, s, min(s + _DRAWS, source.size), shift, draw_key, counts[i])
            for i, s in enumerate(starts)
        ],
        num_threads,
    )
    totals = counts.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(totals)))
    cursors = offsets[:-1] + np.cumsum(counts, axis=0) - counts
    run_all(
        [
            partial(scatter_blocks, source[s : s + _DRAWS], s, shift, draw_key, cursors[i], out)
            for i, s in enumerate(starts)
        ],
        num_threads,
    )
    step = max(1, _DRAWS // _BLOCK)
    run_all(
        [
            partial(shuffle_blocks, out, offsets, b, min(b + step, num_blocks), block_key)
            for b in range(0, num_blocks, step)
        ],
        num_threads,
    )
