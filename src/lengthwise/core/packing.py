"""From shuffled samples to batches: which kernel packs which part, and on which thread."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.pool import limits_array
from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.shuffle import shuffle_samples
from lengthwise.core.threads import run_all

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.core.prepare import Prepared

    Words = npt.NDArray[np.uint64]

_SEGMENT = 1 << 22
"""Samples packed in one go. Larger groups are cut, so that threads can share them; it costs one
short batch in four million samples."""
_WINDOW_TASK = 1 << 17
_WINDOWS_IN_GROUP = 4
_STREAM_SAMPLES = 1 << 17
_MOST_STREAMS = 64


def pack_epoch(
    prepared: Prepared,
    pool_slots: Int64Array | None,
    floors: Int64Array,
    *,
    epoch: int,
    num_threads: int,
) -> Batches:
    """Shuffle and pack all samples of a set-up, as its strategy wants.

    Args:
        prepared: the set-up.
        pool_slots: free slots of the pool for each group, of ``pooled``; else None.
        floors: tokens that batches of each group are padded to at least, shape (G,).
        epoch: the epoch; with the config's seed it decides everything.
        num_threads: threads to use; the result does not depend on it.
    """
    config, words, offsets = prepared.config, prepared.words, prepared.offsets
    if config.strategy == "sorted":
        ends = offsets[[0, -1]]
        return pack_groups(words, ends, np.zeros(1, np.int64), config.limits, num_threads)
    words = shuffle_samples(words, offsets, config.seed, epoch, num_threads)
    if pool_slots is not None:
        return deal(words, prepared, pool_slots, epoch=epoch, num_threads=num_threads)
    if config.window_size is not None:
        sort_in_windows(words, offsets, config.window_size, num_threads)
    return pack_groups(words, offsets, floors, config.limits, num_threads)


def pack_groups(
    words: Words,
    offsets: Int64Array,
    least_padded: Int64Array,
    limits: BatchLimits,
    num_threads: int,
) -> Batches:
    """Pack every group greedily in the order its samples have.

    Args:
        words: samples, group after group, shape (M,).
        offsets: where groups begin and end, shape (G + 1,).
        least_padded: tokens that batches of each group are padded to at least, shape (G,).
        limits: the batch limits.
        num_threads: threads to use; the result does not depend on it.
    """
    from lengthwise.core.kernels.pack import pack_greedily

    numbers = limits_array(limits)
    order = np.empty(words.size, np.uint32)

    def pack(lo: int, hi: int, least: int) -> Int64Array:
        # Room for one batch a sample; memory that is not written is never taken.
        table = np.empty((hi - lo, 4), np.int64)
        return table[: pack_greedily(words[lo:hi], lo, numbers, least, order, table)].copy()

    parts = [
        (lo, hi, int(least_padded[group]))
        for group, (start, stop) in enumerate(pairwise(offsets.tolist()))
        for lo, hi in segments(start, stop, _SEGMENT)
    ]
    return _join(order, run_all([partial(pack, *part) for part in parts], num_threads))


def sort_in_windows(words: Words, offsets: Int64Array, window_size: int, num_threads: int) -> None:
    """Sort windows inside every group by length, in place, rising and falling in turn.

    A window never holds more than a quarter of its group: one that held it all would give the same
    batches in every epoch.
    """
    from lengthwise.core.kernels.partition import sort_windows

    length_bits = int(words.max() >> np.uint64(32)).bit_length() if words.size else 0

    def sort(lo: int, hi: int, size: int, first: int, last: int) -> None:
        spare = np.empty(size, np.uint64)
        sort_windows(words[lo:hi], first, last, size, length_bits, spare)

    tasks: list[Callable[[], None]] = []
    for start, stop in pairwise(offsets.tolist()):
        size = min(window_size, max(1, (stop - start) // _WINDOWS_IN_GROUP))
        num_windows = -(-(stop - start) // size)
        whole = max(1, _WINDOW_TASK // size)
        tasks += [
            partial(sort, start, stop, size, first, min(first + whole, num_windows))
            for first in range(0, num_windows, whole)
        ]
    run_all(tasks, num_threads)


def deal(
    samples: npt.NDArray[np.uint32],
    prepared: Prepared,
    slots: Int64Array,
    *,
    epoch: int,
    num_threads: int,
) -> Batches:
    """Deal samples (one group a length, rising) from the longest down to a pool of open batches.

    A large data set is split at random into streams that are dealt apart. Each has its share of
    the samples of every length and of the pool's slots, so padding and repeats stay what they are,
    while threads share the work and each pool fits the processor's cache.

    Args:
        samples: sample indices by rising length, ties in random order, shape (M,).
        prepared: the set-up they come from.
        slots: free slots of the pool for each group, shape (G,).
        epoch: the epoch; with the config's seed it decides every draw.
        num_threads: threads to use; the result does not depend on it.
    """
    from lengthwise.core.kernels.pack import deal_from_pool

    seed = prepared.config.seed
    count = min(_MOST_STREAMS, max(1, samples.size // _STREAM_SAMPLES))
    cuts = _cut_groups(prepared.offsets, count, stream_key(seed, epoch, Purpose.POOL))
    wanted = np.maximum(slots // count, 1)
    order = np.empty(samples.size, np.uint32)
    numbers = limits_array(prepared.config.limits)
    sizes = np.diff(cuts, axis=0).sum(axis=1)
    bases = np.cumsum(sizes) - sizes

    def deal_stream(index: int) -> Int64Array:
        groups = np.column_stack((cuts[index], cuts[index + 1], wanted, prepared.tops))
        key = np.uint64(stream_key(seed, epoch, Purpose.POOL, index + 1))
        return deal_from_pool(samples, groups, int(bases[index]), numbers, key, order)

    return _join(order, run_all([partial(deal_stream, i) for i in range(count)], num_threads))


def _cut_groups(offsets: Int64Array, count: int, key: int) -> Int64Array:
    """Where each stream's part of each group begins; shape (count + 1, G).

    Parts differ by one sample at most; a random offset for each group decides which are larger.
    """
    from lengthwise.core.kernels.random import bounded_range

    sizes = np.diff(offsets)
    dither = np.empty(sizes.size, np.int64)
    bounded_range(count, np.uint64(key), dither)
    parts = (np.arange(count + 1)[:, None] * sizes + dither) // count
    return offsets[:-1] + parts


def segments(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Cut ``[start, stop)`` into equal parts of at most ``size``."""
    count = -(-(stop - start) // size)
    cuts = [start + (stop - start) * i // count for i in range(count + 1)] if count else []
    return list(pairwise(cuts))


def _join(order: npt.NDArray[np.uint32], tables: list[Int64Array]) -> Batches:
    return Batches.of_table(order, np.concatenate([np.empty((0, 4), np.int64), *tables]))
