"""The expected cost of greedy packing against every order, an endless bucket, and simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.boundaries import evaluate_boundaries
from lengthwise.core.cost import PaddedTokens
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.kernels.expectation import bucket_cost
from lengthwise.core.limits import BatchLimits
from lengthwise.core.support import build_support, build_table
from support.twins_expectation import mean_over_orders, mean_over_shuffles, pack, rates


def padded(size, longest):
    return size * longest


def one_bucket(lengths, limits, **options):
    hist = LengthHistogram.from_lengths(lengths)
    return evaluate_boundaries(hist, limits, [0, hist.longest + 1], **options)


def slots(batch_size, longest):
    return batch_size.astype(float)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(12, 40),
    st.integers(1, 6),
)
def test_tiny_buckets_agree_with_the_mean_over_every_order(lengths, max_tokens, most):
    """Up to a few batches the only approximation is that batches do not remember each other.

    Over 3,000 random buckets of up to six samples the worst was 14 % in batches and 7 % in padded
    tokens, both at two to four batches; the bounds leave room above that.
    """
    result = one_bucket(lengths, BatchLimits(max_tokens, most))
    batches, tokens = mean_over_orders(lengths, padded, max_tokens=max_tokens, max_batch_size=most)
    assert result.num_batches == pytest.approx(batches, rel=0.25)
    assert result.padded_tokens == pytest.approx(tokens, rel=0.15)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60))
def test_a_bucket_that_fits_one_batch_is_one_batch_of_its_longest(lengths):
    """The budget takes all samples at the longest, so nothing is left to chance."""
    result = one_bucket(lengths, BatchLimits(1000 * 60))
    assert result.num_batches == 1.0
    assert result.padded_tokens == len(lengths) * max(lengths)


@given(st.integers(1, 400), st.integers(1, 50), st.integers(50, 500), st.integers(1, 16))
def test_equal_lengths_give_full_batches_and_one_rest(count, length, max_tokens, most):
    """All batches have min(budget / length, most) samples; their number is a rounded-up ratio."""
    result = one_bucket([length] * count, BatchLimits(max_tokens, most))
    size = min(max_tokens // length, most)
    assert result.num_batches == -(-count // size)
    assert result.padded_tokens == pytest.approx(count * length, rel=1e-12)
    assert result.efficiency == pytest.approx(1.0, rel=1e-12)


@given(
    st.dictionaries(st.integers(3, 30), st.integers(1, 9), min_size=2, max_size=6),
    st.integers(30, 200),
    st.integers(2, 12),
)
def test_a_large_bucket_agrees_with_an_endless_one(counts, max_tokens, most):
    """A million times the counts: the ends and drawing without replacement no longer matter."""
    total = sum(counts.values())
    shares = {length: count / total for length, count in counts.items()}
    scaled = [count * 1_000_000 for count in counts.values()]
    hist = LengthHistogram.from_counts(list(counts), scaled)
    limits = BatchLimits(max_tokens, most)
    result = evaluate_boundaries(hist, limits, [0, hist.longest + 1])
    batches, tokens = rates(shares, max_tokens, most, padded)
    number = hist.num_samples
    assert result.num_batches == pytest.approx(batches * number, rel=1e-5)
    assert result.padded_tokens == pytest.approx(tokens * number, rel=1e-5)


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=120),
    st.integers(60, 400),
    st.integers(1, 20),
    st.sampled_from([1, 2, 4]),
)
def test_following_every_sample_leaves_none_out(lengths, max_tokens, most, multiple):
    """With the batch size as the cost, the expected cost is the number of samples."""
    limits = BatchLimits(max_tokens, most, batch_size_multiple_of=multiple)
    support = build_support(LengthHistogram.from_lengths(lengths), limits)
    table = build_table(support, limits, slots)
    _, total = bucket_cost(0, len(support), table, 10**9)
    assert total == pytest.approx(len(lengths), rel=1e-9)


@pytest.mark.parametrize(("low", "high", "count"), [(50, 1000, 500), (500, 3000, 300)])
def test_both_routes_agree_on_a_middling_bucket(low, high, count):
    """From some twenty batches on, the stationary law and the walk through all positions meet."""
    lengths = np.geomspace(low, high, count).astype(np.int64)
    limits = BatchLimits(16_384, 32)
    support = build_support(LengthHistogram.from_lengths(lengths), limits)
    table = build_table(support, limits, PaddedTokens())
    walked = bucket_cost(0, len(support), table, 10**9)
    settled = bucket_cost(0, len(support), table, 0)
    assert settled == pytest.approx(walked, rel=5e-3)
    assert settled != walked


@pytest.mark.parametrize(
    ("count", "batches_within", "tokens_within"),
    [(12, 0.05, 0.02), (40, 0.02, 0.01), (120, 0.01, 0.005), (600, 0.004, 0.003)],
)
def test_small_buckets_agree_with_shuffled_epochs(count, batches_within, tokens_within):
    """The accuracy that the docs promise for few batches: 12 samples are 2 to 3 batches here."""
    lengths = [40 + 37 * (i * i % 101) % 400 for i in range(count)]
    result = one_bucket(lengths, BatchLimits(2000, 16))
    means, errors = mean_over_shuffles(
        lengths, max(100, 60_000 // count), padded, max_tokens=2000, max_batch_size=16
    )
    assert abs(result.num_batches - means[0]) < batches_within * means[0] + 4 * errors[0]
    assert abs(result.padded_tokens - means[1]) < tokens_within * means[1] + 4 * errors[1]


def test_padding_to_a_multiple_changes_which_batches_fit():
    """Lengths 33 and 40 both become 64: three fit 200 tokens, whatever their order."""
    result = one_bucket([33, 40] * 30, BatchLimits(200, pad_to_multiple_of=64))
    assert result.num_batches == 20.0
    assert result.padded_tokens == pytest.approx(60 * 64)
    assert result.real_tokens == 30 * 73


def test_a_size_multiple_is_simulated_and_says_so():
    """The twin rounds each closed batch down to a multiple of 4 and carries the rest over."""
    lengths = [10 + 7 * i % 90 for i in range(400)]
    limits = BatchLimits(800, 20, batch_size_multiple_of=4)
    result = one_bucket(lengths, limits)
    means, _ = mean_over_shuffles(
        lengths, 200, padded, max_tokens=800, max_batch_size=20, size_multiple=4
    )
    assert any("simulated epochs" in note for note in result.notes)
    assert result.num_batches == pytest.approx(means[0], rel=0.01)
    assert result.padded_tokens == pytest.approx(means[1], rel=0.01)
    assert result == one_bucket(lengths, limits)  # a fixed seed


def test_the_twin_packs_as_written_in_the_definition():
    """A worked example: 4 * 30 > 100 closes the first batch at three; 60 fits beside nothing."""
    assert pack([10, 20, 30, 25, 60, 60], 100) == [(3, 30), (1, 25), (1, 60), (1, 60)]
    assert pack([10] * 11, 100, size_multiple=4) == [(8, 10), (3, 10)]


def test_a_cost_model_of_any_shape_is_followed():
    """Seconds that grow with the square of the longest: all batches here are (2, 50)."""
    result = one_bucket(
        [50] * 10, BatchLimits(100), objective=lambda n, m: 1.0 + n * m.astype(float) ** 2
    )
    assert result.cost == pytest.approx(5 * (1 + 2 * 2500))
