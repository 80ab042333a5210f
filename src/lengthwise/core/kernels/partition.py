"""Grouping and shuffling samples.

A sample travels as one word: ``length << 32 | index``, uint64, or the index alone, uint32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.random import bounded, mix, shuffle_range

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Words = npt.NDArray[np.uint64]
    AnyWords = npt.NDArray[Any]

_32 = np.uint64(32)


@kernel
def scatter_groups(
    lengths: Int64Array,
    groups: npt.NDArray[np.int32],
    first: int,
    cursor: Int64Array,
    out: AnyWords,
) -> None:
    """Write each sample as a word to the next place of its group; groups below 0 are left out.

    Args:
        lengths: a run of consecutive samples, shape (n,).
        groups: their groups, shape (n,).
        first: index of the run's first sample.
        cursor: next free place in ``out`` per group; advanced.
        out: where the words go; of 32 bits it takes their low halves, the indices.
    """
    for i in range(lengths.size):
        group = groups[i]
        if group >= 0:
            word = (np.uint64(lengths[i]) << _32) | np.uint64(first + i)
            out[cursor[group]] = word
            cursor[group] += 1


@kernel
def shuffle_groups(
    source: AnyWords, out: AnyWords, offsets: Int64Array, first: int, last: int, key: np.uint64
) -> None:
    """Copy groups ``first .. last - 1`` to ``out``, each in random order (inside-out shuffle)."""
    for group in range(first, last):
        lo, hi = offsets[group], offsets[group + 1]
        stream = mix(key, np.uint64(group))
        for i in range(hi - lo):
            j = np.int64(bounded(mix(stream, np.uint64(i)), np.uint64(i + 1)))
            out[lo + i] = out[lo + j]
            out[lo + j] = source[lo + i]


@kernel
def count_blocks(first: int, last: int, shift: int, key: np.uint64, counts: Int64Array) -> None:
    """Count how many of the draws ``first .. last - 1`` fall into each block.

    A draw's block is the top ``64 - shift`` bits of its word.
    """
    down = np.uint64(shift)
    for i in range(first, last):
        counts[np.int64(mix(key, np.uint64(i)) >> down)] += 1


@kernel
def scatter_blocks(
    source: AnyWords,
    first: int,
    shift: int,
    key: np.uint64,
    cursor: Int64Array,
    out: AnyWords,
) -> None:
    """Write each word to the next place of its random block (the draws of `count_blocks`)."""
    down = np.uint64(shift)
    for i in range(source.size):
        block = np.int64(mix(key, np.uint64(first + i)) >> down)
        out[cursor[block]] = source[i]
        cursor[block] += 1


@kernel
def sort_windows(
    words: Words, first: int, last: int, window_size: int, length_bits: int, spare: Words
) -> None:
    """Sort windows ``first .. last - 1`` of ``words`` by length, in place.

    Even windows rise and odd windows fall, so that neighbours join smoothly. A radix sort, eight
    bits a pass; equal lengths keep their random order (reversed in falling windows).

    Args:
        words: the samples of one segment.
        first: first window to sort.
        last: one past the last window.
        window_size: samples in a window; the last one of the segment may be shorter.
        length_bits: bits that the longest length needs.
        spare: scratch, at least ``window_size`` words.
    """
    digit_count = np.empty(256, np.int64)
    low = np.uint64(255)
    for window in range(first, last):
        lo = window * window_size
        hi = min(lo + window_size, words.size)
        size = hi - lo
        from_spare = False
        for bit in range(0, length_bits, 8):
            shift = np.uint64(32 + bit)
            source = spare[:size] if from_spare else words[lo:hi]
            target = words[lo:hi] if from_spare else spare[:size]
            digit_count[:] = 0
            for i in range(size):
                digit_count[np.int64((source[i] >> shift) & low)] += 1
            total = 0
            for digit in range(256):
                size_here = int(digit_count[digit])
                digit_count[digit] = total
                total += size_here
            for i in range(size):
                digit = int(np.int64((source[i] >> shift) & low))
                target[digit_count[digit]] = source[i]
                digit_count[digit] += 1
            from_spare = not from_spare
        if from_spare:
            words[lo:hi] = spare[:size]
        if window % 2 == 1:
            for i in range(size // 2):
                words[lo + i], words[hi - 1 - i] = words[hi - 1 - i], words[lo + i]


@kernel
def shuffle_blocks(
    words: AnyWords, offsets: Int64Array, first: int, last: int, key: np.uint64
) -> None:
    """Shuffle blocks ``first .. last - 1`` of ``words`` in place; ``offsets`` bounds them."""
    for block in range(first, last):
        shuffle_range(words, offsets[block], offsets[block + 1], mix(key, np.uint64(block)))


@kernel
def count_before(
    words: npt.NDArray[np.uint16], blocks: Int64Array, edges: Int64Array, out: Int64Array
) -> None:
    """Where in the words of each group the samples from each edge on begin.

    Args:
        words: the last 16 bits of samples' indices, group after group, rising inside a block.
        blocks: where each block of ``2**16`` samples begins in the words, by group; (G, B + 1).
        edges: indices of samples, at most all of them; shape (K,).
        out: written, shape (G, K).
    """
    for group in range(len(blocks)):
        for k in range(edges.size):
            block, inside = edges[k] >> 16, edges[k] & 0xFFFF
            low = blocks[group, block]
            high = blocks[group, block + 1] if block + 1 < blocks.shape[1] else low
            while low < high:
                middle = (low + high) // 2
                if np.int64(words[middle]) < inside:
                    low = middle + 1
                else:
                    high = middle
            out[group, k] = low
