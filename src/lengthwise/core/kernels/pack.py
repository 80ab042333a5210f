"""Turning a sequence of samples into batches: greedy filling, and dealing from a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.random import bounded, mix

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Words = npt.NDArray[np.uint64]
    Indices = npt.NDArray[np.uint32]

_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
START, SIZE, PADDED, TOKENS = range(4)
"""Columns of a table of batches."""


@kernel
def _round_up(length: int, multiple: int) -> int:
    if multiple == 1:  # spares a division a sample
        return length
    return (length + multiple - 1) // multiple * multiple


@kernel
def _to_multiple(size: int, multiple: int) -> int:
    return size // multiple * multiple if size >= multiple else size


@kernel
def pack_greedily(
    words: Words,
    base: int,
    limits: Int64Array,
    least_padded: int,
    order: Indices,
    table: Int64Array,
) -> int:
    """Fill batch after batch: a sample joins if the batch still is within the limits with it.

    The test uses the running maximum of the open batch, so it is right in any order. A sample that
    is over the budget alone gets a batch of its own; callers let none through unless told to.

    Args:
        words: the samples in the order to take them.
        base: place of the first sample in ``order``.
        limits: ``[max_tokens, max_batch_size, pad_to_multiple_of, batch_size_multiple_of]``.
        least_padded: every batch is padded to at least this; 0 pads to its own longest.
        order: sample indices; ``order[base : base + len(words)]`` is written.
        table: one row a batch is written: where it starts in ``order``, its samples, tokens each
            is padded to, real tokens; shape (at least the number of batches, 4).

    Returns:
        The number of batches.
    """
    max_tokens, pad_to, multiple = limits[0], limits[2], limits[3]
    max_size = _to_multiple(limits[1], multiple)
    count = 0
    start = 0
    n = words.size
    while start < n:
        size, longest, total = 0, least_padded, 0
        i = start
        while i < n and size < max_size:
            length = int(np.int64(words[i] >> _32))
            wide = max(longest, _round_up(length, pad_to))
            if size > 0 and (size + 1) * wide > max_tokens:
                break
            order[base + i] = np.uint32(words[i] & _LOW)
            size, longest, total, i = size + 1, wide, total + length, i + 1
        if size % multiple != 0 and size > multiple:
            size = size // multiple * multiple
            longest, total = least_padded, 0
            for k in range(start, start + size):
                length = int(np.int64(words[k] >> _32))
                longest, total = max(longest, _round_up(length, pad_to)), total + length
        table[count, START], table[count, SIZE] = base + start, size
        table[count, PADDED], table[count, TOKENS] = longest, total
        count += 1
        start += size
    return count


@kernel
def _twice(table: Int64Array) -> Int64Array:
    larger = np.empty((2 * len(table), table.shape[1]), np.int64)
    larger[: len(table)] = table
    return larger


@kernel
def deal_from_pool(
    samples: Indices,
    groups: Int64Array,
    base: int,
    limits: Int64Array,
    key: np.uint64,
    order: Indices,
) -> Int64Array:
    """Deal samples, longest first, at random to the free slots of a pool of open batches.

    The first sample of a batch is its longest and fixes its number of slots. While the pool has
    fewer free slots than wanted, the next sample opens a batch; else it takes a random slot. No
    more slots are opened than samples are left, so every batch ends full.

    Args:
        samples: sample indices by rising length.
        groups: one row a length, rising: first and end place of the samples to deal, the free
            slots wanted there, and the length; shape (G, 4).
        base: place of the first batch in ``order``.
        limits: as in :func:`pack_greedily`.
        key: the random stream.
        order: as in :func:`pack_greedily`.

    Returns:
        A table as in :func:`pack_greedily`, of as many rows as there are batches.
    """
    max_tokens, max_size, pad_to, multiple = limits
    left, most_free = 0, 0
    for group in range(len(groups)):
        left += groups[group, 1] - groups[group, 0]
        most_free = max(most_free, groups[group, 2])
    pool = np.empty(min(most_free + min(max_size, max_tokens // pad_to), left) + 1, np.int32)
    # Grows where batches are small: room for one batch a sample would be mostly unused.
    table = np.empty((left // 32 + 16, 4), np.int64)
    count, free, opened = 0, 0, base
    for group in range(len(groups) - 1, -1, -1):
        first, end, wanted, length = groups[group]
        wide = _round_up(length, pad_to)
        full = max(1, _to_multiple(min(max_tokens // wide, max_size), multiple))
        for place in range(end - 1, first - 1, -1):
            left -= 1
            sample = samples[place]
            if free < wanted or free == 0:
                size = full
                if free == 0:
                    size = _to_multiple(min(size, left + 1), multiple)
                if free + size - 1 <= left:
                    if count == len(table):
                        table = _twice(table)
                    # While a batch is open, START is where its next sample goes.
                    table[count, START], table[count, SIZE] = opened + 1, size
                    table[count, PADDED], table[count, TOKENS] = wide, length
                    order[opened] = sample
                    pool[free : free + size - 1] = count
                    free, opened, count = free + size - 1, opened + size, count + 1
                    continue
            slot = np.int64(bounded(mix(key, np.uint64(left)), np.uint64(free)))
            batch = pool[slot]
            free -= 1
            pool[slot] = pool[free]
            order[table[batch, START]] = sample
            table[batch, START] += 1
            table[batch, TOKENS] += length
    for batch in range(count):
        table[batch, START] -= table[batch, SIZE]
    return table[:count].copy()


@kernel
def measure_table(
    order: Indices, lengths: Int64Array, pad_to: int, least_padded: Int64Array, table: Int64Array
) -> None:
    """Fill in padded length and real tokens of each batch from its samples' lengths.

    Args:
        order: sample indices.
        lengths: tokens of each sample.
        pad_to: padded lengths are multiples of this.
        least_padded: each batch is padded to at least this, shape (B,).
        table: as in :func:`pack_greedily`; the last two columns are written, shape (B, 4).
    """
    for batch in range(len(table)):
        longest, total = 0, 0
        start = table[batch, START]
        for place in range(start, start + table[batch, SIZE]):
            length = int(lengths[order[place]])
            longest, total = max(longest, length), total + length
        table[batch, PADDED] = max(_round_up(longest, pad_to), least_padded[batch])
        table[batch, TOKENS] = total
