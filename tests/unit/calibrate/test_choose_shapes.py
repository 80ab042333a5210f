"""The shapes to measure: what a plan makes, and what tells the coefficients apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise import BatchLimits, LengthHistogram
from lengthwise.calibrate import choose_shapes
from lengthwise.errors import ConfigError, DataError

LENGTHS = np.random.default_rng(0).gamma(2, 400, 20_000).astype(np.int64) + 20


@given(
    st.lists(st.integers(1, 600), min_size=1, max_size=60),
    st.integers(100, 20_000),
    st.one_of(st.none(), st.integers(1, 40)),
    st.sampled_from([1, 8, 64]),
    st.sampled_from([1, 4]),
    st.integers(4, 30),
)
def test_shapes_are_legal_batches_at_lengths_of_the_data(
    lengths, max_tokens, max_batch_size, multiple, sizes, num_shapes
):
    # Whatever the limits: within them, different, no more than asked for, each at the padded
    # length of some sample, and the longest sample that fits is among them as a full batch.
    limits = BatchLimits(max_tokens, max_batch_size, multiple, sizes)
    usable = [length for length in lengths if -(-length // multiple) * multiple <= max_tokens]
    if not usable:
        with pytest.raises(DataError, match="no sample fits"):
            choose_shapes(limits, lengths, num_shapes)
        return
    shapes = choose_shapes(limits, lengths, num_shapes)
    assert 1 <= len(shapes) == len(set(shapes)) <= num_shapes
    padded = {-(-length // multiple) * multiple for length in usable}
    for size, longest in shapes:
        assert longest in padded
        assert size * longest <= max_tokens
        assert size <= (max_batch_size or size)
        assert size < sizes or size % sizes == 0
    assert (limits.batch_size_for(max(padded)), max(padded)) in shapes


def test_full_and_small_batches_tell_the_coefficients_apart():
    # The columns 1, n*m and n*m^2, each scaled to at most 1: their condition number says how far
    # errors grow when solved for. Full batches alone have n*m nearly constant, which makes it
    # hundreds; with small ones it must be far less.
    limits = BatchLimits(max_tokens=49_152)
    shapes = np.array(choose_shapes(limits, LENGTHS))
    assert len(shapes) == 24

    def condition(pairs):
        size, longest = pairs.T.astype(float)
        columns = np.stack((np.ones(size.size), size * longest, size * longest**2), axis=1)
        return np.linalg.cond(columns / columns.max(axis=0))

    full = np.array([pair for pair in shapes if limits.batch_size_for(pair[1]) == pair[0]])
    assert condition(shapes) < 10
    assert condition(shapes) < condition(full) / 5


def test_the_work_of_a_round_is_bounded():
    # Full, half and eighth of a batch at each length: 13/24 of num_shapes full batches, with a
    # little more where a half rounds to another full one.
    limits = BatchLimits(max_tokens=16_384)
    shapes = choose_shapes(limits, LENGTHS, 24)
    assert sum(size * longest for size, longest in shapes) <= 0.6 * 24 * 16_384


def test_the_lengths_follow_the_tokens_of_the_data():
    # A single sample of 8,192 tokens among thousands near 100 is measured, as the longest; the
    # other lengths are those where the tokens are.
    lengths = np.append(np.full(5_000, 100) + np.arange(5_000) % 20, 8_192)
    longest = sorted({m for _, m in choose_shapes(BatchLimits(16_384), lengths)})
    assert longest[-1] == 8_192
    assert all(99 < value < 120 for value in longest[:-1])
    assert len(longest) >= 3


def test_a_histogram_gives_what_its_lengths_give():
    # The histogram holds all that is used.
    limits = BatchLimits(max_tokens=8_192, max_batch_size=32)
    hist = LengthHistogram.from_lengths(LENGTHS)
    assert choose_shapes(limits, hist) == choose_shapes(limits, LENGTHS)


def test_fewer_than_four_shapes_make_no_fit():
    # Three coefficients and an error need four.
    with pytest.raises(ConfigError, match="num_shapes must be from 4"):
        choose_shapes(BatchLimits(1_000), [10, 20], num_shapes=3)
