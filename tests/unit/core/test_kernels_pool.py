"""Densities and pool sizes against plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.kernels import pool
from support import twins_planner as twin

HISTOGRAM = st.dictionaries(st.integers(1, 120), st.integers(1, 200), min_size=1, max_size=25).map(
    lambda counts: sorted(counts.items())
)


def columns(pairs):
    return [length for length, _ in pairs], [count for _, count in pairs]


@given(HISTOGRAM)
def test_density_counts_the_narrowest_range_that_holds_enough_samples(pairs):
    """The twin widens the range token by token; one division each, so floats agree to the bit."""
    lengths, counts = columns(pairs)
    got = pool.densities(np.array(lengths), np.array(counts))
    assert got.tolist() == twin.densities(lengths, counts)


def test_density_reaches_across_gaps_near_the_largest_lengths():
    """Ten samples are fewer than 32: each range must hold all ten, however far apart they are."""
    lengths = [1, 2, 2**32 - 1]
    got = pool.densities(np.array(lengths), np.array([4, 4, 2]))
    reaches = [2**32 - 2, 2**32 - 3, 2**32 - 2]
    assert got.tolist() == [10 / (2 * reach + 1) for reach in reaches]


@given(
    HISTOGRAM,
    st.sampled_from([1, 2, 8, 64]),
    st.integers(1, 200),
    st.sampled_from([1, 4, 8, 64]),
    st.floats(1e-12, 1e25),
)
def test_slots_grow_with_batch_size_and_density_and_keep_some_batches_open(
    pairs, pad_to, max_size, multiple, scale
):
    """The formula in plain floats, in the kernel's order of operations."""
    lengths, counts = columns(pairs)
    density = twin.densities(lengths, counts)
    limits = (128, min(max_size, 128 // pad_to), pad_to, multiple)
    got = pool.slots_for(np.array(lengths), np.array(density), np.array(limits, np.int64), scale, 4)
    assert got.tolist() == twin.slots_for(lengths, density, limits, scale, 4)


@given(HISTOGRAM, st.integers(1, 200), st.sampled_from([1, 4, 8]), st.data())
def test_expected_repeats_are_the_mean_over_pairs(pairs, max_size, multiple, data):
    """The twin counts in fractions; lengths above the budget count as batches of one."""
    lengths, counts = columns(pairs)
    limits = (100, max_size, 1, multiple)
    size = st.integers(1, 2**41)
    slots = data.draw(st.lists(size, min_size=len(lengths), max_size=len(lengths)))
    got = pool.expected_repeats(
        np.array(lengths), np.array(counts), np.array(slots), np.array(limits, np.int64)
    )
    assert got == pytest.approx(float(twin.expected_repeats(lengths, counts, slots, limits)))
    assert 0 <= got <= 1
