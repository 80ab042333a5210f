"""How a data set is cut into parts for threads: nothing lost, nothing lopsided."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.packing import _cut_groups, segments
from lengthwise.core.random import derive_key

WORD = st.integers(0, 2**64 - 1)


@given(st.integers(0, 50), st.integers(0, 200), st.integers(1, 40))
def test_segments_tile_a_range_in_parts_of_at_most_the_size(start, count, size):
    """In turn, without gaps; as few as can be, and equal to within one."""
    parts = segments(start, start + count, size)
    assert [i for lo, hi in parts for i in range(lo, hi)] == list(range(start, start + count))
    widths = [hi - lo for lo, hi in parts]
    assert len(parts) == -(-count // size)
    assert not widths or (max(widths) <= size and max(widths) - min(widths) <= 1)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 8), WORD)
def test_every_stream_gets_its_share_of_every_length(sizes, count, key):
    """Parts of a group lie one after the other and differ by one sample at most."""
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    cuts = _cut_groups(offsets, count, key)
    assert cuts.shape == (count + 1, len(sizes))
    assert np.array_equal(cuts[0], offsets[:-1])
    assert np.array_equal(cuts[-1], offsets[1:])
    shares = np.diff(cuts, axis=0)
    assert shares.min() >= 0
    assert (shares.max(axis=0) - shares.min(axis=0)).max() <= 1


def test_no_stream_is_favoured_where_shares_do_not_divide():
    """One sample of each of 4,000 lengths for four streams: 1,000 each, within 5 deviations.

    Without the random offset the last stream would take every one of them.
    """
    offsets = np.arange(4001)
    cuts = _cut_groups(offsets, 4, derive_key(1))
    taken = np.diff(cuts, axis=0)
    owners = Counter(taken.argmax(axis=0).tolist())
    assert taken.sum() == 4000
    assert all(abs(owners[stream] - 1000) < 140 for stream in range(4))
