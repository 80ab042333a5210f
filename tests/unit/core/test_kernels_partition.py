"""Grouping, shuffling and window sorting against plain Python, on small and hostile arrays."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lengthwise.core.kernels import partition
from lengthwise.core.random import derive_key
from support import twins_planner as twin

U = np.uint64
WORD = st.integers(0, 2**64 - 1)
LENGTH = st.one_of(st.integers(1, 9), st.sampled_from([255, 256, 65_536, 2**31, 2**32 - 1]))
UNTOUCHED = 7


def words_of(samples):
    return np.array([twin.as_word(sample) for sample in samples], np.uint64)


def numbered(lengths):
    return [(length, index) for index, length in enumerate(lengths)]


@given(st.lists(st.tuples(LENGTH, st.integers(-1, 4)), max_size=40), st.integers(0, 2**32 - 50))
def test_scatter_writes_each_group_in_the_order_of_the_data_and_skips_negative_groups(rows, first):
    """The twin collects group after group; lengths up to 2**32 - 1 must keep all their bits."""
    lengths, groups = [row[0] for row in rows], [row[1] for row in rows]
    counts = Counter(groups)
    begins = [1 + sum(counts[g] for g in range(group)) for group in range(5)]
    cursor, out = np.array(begins), np.full(len(rows) + 2, UNTOUCHED, np.uint64)
    partition.scatter_groups(
        np.array(lengths, np.int64), np.array(groups, np.int32), first, cursor, out
    )
    expected, moved = twin.scatter_groups(
        lengths, groups, first, begins, [UNTOUCHED] * (len(rows) + 2)
    )
    assert out.tolist() == expected
    assert cursor.tolist() == moved


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), WORD, st.data())
def test_each_group_is_shuffled_by_its_own_stream_and_others_stay_untouched(sizes, key, data):
    """A group's order may depend on its number and size alone, so that tasks can share the work."""
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    source = np.arange(offsets[-1], dtype=np.uint64) + U(100)
    out = np.full_like(source, UNTOUCHED)
    partition.shuffle_groups(source, out, offsets, first, last, U(key))
    expected = [UNTOUCHED] * source.size
    for group in range(first, last):
        lo, hi = int(offsets[group]), int(offsets[group + 1])
        expected[lo:hi] = twin.shuffle_group(source[lo:hi].tolist(), key, group)
    assert out.tolist() == expected


def test_shuffling_a_group_gives_every_order_of_four_equally_often():
    """24 orders, 500 expected each: 5 standard deviations are 110, a biased swap is off by more."""
    seen = Counter()
    offsets = np.array([0, 4])
    for number in range(12_000):
        out = np.empty(4, np.uint64)
        partition.shuffle_groups(
            np.arange(4, dtype=np.uint64), out, offsets, 0, 1, U(derive_key(5, number))
        )
        seen[tuple(out.tolist())] += 1
    assert len(seen) == 24
    assert all(abs(count - 500) < 110 for count in seen.values())


@given(st.integers(0, 60), st.integers(1, 4), WORD, st.integers(0, 59))
def test_blocks_are_counted_and_filled_in_parts_as_in_one_go(size, bits, key, cut):
    """Two tasks share the blocks: counting and scattering each part must meet without gaps."""
    shift, cut = 64 - bits, min(cut, size)
    values = np.arange(size, dtype=np.uint64) + U(1000)
    parts = [(0, cut), (cut, size)]
    counts = np.zeros((2, 2**bits), np.int64)
    for row, (lo, hi) in enumerate(parts):
        partition.count_blocks(lo, hi, shift, U(key), counts[row])
    totals = counts.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(totals)))
    out = np.empty(size, np.uint64)
    cursors = offsets[:-1] + np.cumsum(counts, axis=0) - counts
    for row, (lo, hi) in enumerate(parts):
        partition.scatter_blocks(values[lo:hi], lo, shift, U(key), cursors[row], out)
    expected = twin.deal_to_blocks(values.tolist(), 0, shift, key)
    assert totals.tolist() == [len(block) for block in expected]
    assert out.tolist() == list(chain(*expected))
    partition.shuffle_blocks(out, offsets, 0, 2**bits, U(key))
    assert out.tolist() == list(chain(*twin.shuffle_blocks(expected, key)))


@given(
    lengths=st.lists(LENGTH, max_size=50),
    window_size=st.sampled_from([1, 2, 3, 7, 50, 2**31]),
    data=st.data(),
)
def test_windows_rise_and_fall_in_turn(lengths, window_size, data):
    """A stable sort of Python pairs, turned round in odd windows; other windows are not touched."""
    samples = numbered(lengths)
    num_windows = -(-len(samples) // window_size)
    first = data.draw(st.integers(0, num_windows))
    last = data.draw(st.integers(first, num_windows))
    words = words_of(samples)
    bits = max(lengths, default=0).bit_length()
    spare = np.empty(min(window_size, len(samples)), np.uint64)
    partition.sort_windows(words, first, last, window_size, bits, spare)
    assert words.tolist() == words_of(twin.sort_windows(samples, first, last, window_size)).tolist()


@pytest.mark.parametrize("longest", [1, 255, 256, 65_535, 65_536, 2**24, 2**32 - 1])
@example(seed=0)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_window_over_everything_is_a_stable_sort(longest, seed):
    """Every number of radix passes from one to four: odd ones end in the scratch array."""
    lengths = np.random.default_rng(seed).integers(1, longest, 30, endpoint=True).tolist()
    words = words_of(numbered(lengths))
    partition.sort_windows(words, 0, 1, 30, longest.bit_length(), np.empty(30, np.uint64))
    assert words.tolist() == words_of(sorted(numbered(lengths), key=lambda pair: pair[0])).tolist()
