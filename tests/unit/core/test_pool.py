"""The pool of open batches: it reaches its efficiency, and mixes more widely than windows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.diversity import partner_repeat_rate
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.core.pool import DEFAULT_EFFICIENCY, MOST_REPEATS, size_pool
from support.run_batches import MAX_BATCH_SIZE, MAX_TOKENS, run_lengths

LIMITS = BatchLimits(MAX_TOKENS, MAX_BATCH_SIZE)


def two_epochs(lengths, **fields):
    """Efficiency of the first epoch, and the share of its pairs that meet again in the second."""
    planner = Planner(lengths, BatchingConfig(limits=LIMITS, **fields))
    first, second = planner.plan(0), planner.plan(1)
    return first, partner_repeat_rate(first.batches, second.batches)


@pytest.mark.parametrize("target", [0.9, 0.95, 0.98, 0.99])
def test_the_run_reaches_the_target_within_three_thousandths(target):
    """The trial that sized the pool, and plans of other seeds and epochs alike."""
    lengths = run_lengths()
    sizes = size_pool(LengthHistogram.from_lengths(lengths), LIMITS, target)
    assert sizes.efficiency == pytest.approx(target, abs=0.003)
    config = BatchingConfig(limits=LIMITS, target_efficiency=target, seed=5)
    plan = Planner(lengths, config).plan(3)
    assert plan.stats.efficiency == pytest.approx(target, abs=0.003)
    batches = plan.batches
    assert int(batches.padded_tokens.max()) <= MAX_TOKENS
    assert int(batches.sizes.max()) <= MAX_BATCH_SIZE
    edges = np.sort(batches.starts)  # batches tile the order
    longest = np.maximum.reduceat(lengths[batches.order], edges)
    assert np.array_equal(longest, batches.padded[np.argsort(batches.starts)])


def test_at_the_efficiency_of_windows_a_fifth_fewer_pairs_meet_again():
    """The headline: on the run's distribution, at no less efficiency than windows of 1,024.

    Measured: 0.00052 against 0.00076, 31 % less; 20 % is what is promised.
    """
    lengths = run_lengths()
    windows, repeats_of_windows = two_epochs(lengths, strategy="windowed")
    target = windows.stats.efficiency + 0.0005
    pool, repeats_of_pool = two_epochs(lengths, target_efficiency=target)
    assert pool.stats.efficiency >= windows.stats.efficiency
    assert pool.num_batches <= windows.num_batches
    assert repeats_of_pool <= 0.8 * repeats_of_windows


def test_the_default_pads_less_than_windows_and_mixes_no_less():
    """What a user gets who chooses nothing: 98 % where windows of 1,024 reach 97.4 %."""
    lengths = run_lengths()
    windows, repeats_of_windows = two_epochs(lengths, strategy="windowed")
    pool, repeats_of_pool = two_epochs(lengths)
    assert pool.stats.efficiency == pytest.approx(DEFAULT_EFFICIENCY, abs=0.003)
    assert pool.stats.efficiency > windows.stats.efficiency
    assert repeats_of_pool < repeats_of_windows


@pytest.mark.parametrize("every", [100, 200, 400])
def test_in_small_data_the_default_mixes_first_and_an_explicit_target_is_kept(every):
    """Some thousand samples cannot have both. The limit is an estimate: 1.5 times it passes."""
    lengths = run_lengths(every)
    default, repeats = two_epochs(lengths)
    assert repeats <= 1.5 * MOST_REPEATS
    explicit, more_repeats = two_epochs(lengths, target_efficiency=0.98)
    assert explicit.stats.efficiency == pytest.approx(0.98, abs=0.02)
    assert default.stats.efficiency < explicit.stats.efficiency
    assert more_repeats > repeats


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.integers(1, 1000, n),
        lambda rng, n: np.minimum(20 * (1 + rng.pareto(1.1, n)), 4000).astype(int),
        lambda rng, n: np.clip(rng.lognormal(6, 0.8, n), 1, 8000).astype(int),
        lambda rng, n: rng.choice([10, 11, 500, 512, 3000], n),
    ],
    ids=["uniform", "Pareto", "lognormal", "five lengths"],
)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(2000, 30_000),
    max_tokens=st.integers(8000, 60_000),
    max_batch_size=st.sampled_from([8, 64, 1000]),
    pad_to=st.sampled_from([1, 64]),
    target=st.sampled_from([0.8, 0.9, 0.95, 0.98]),
)
def test_other_distributions_reach_what_can_be_reached(
    draw, seed, count, max_tokens, max_batch_size, pad_to, target
):
    """Within a hundredth: with five lengths the pool's size has steps. Beyond the ends: the end.

    Where the data are a few dozen batches, one batch more is a step too: it lowers the efficiency
    by its share of all padded tokens, of which the nearer end is at most half away.
    """
    hist = LengthHistogram.from_lengths(draw(np.random.default_rng(seed), count))
    limits = BatchLimits(max_tokens, max_batch_size, pad_to)
    reached = size_pool(hist, limits, target).efficiency
    widest = size_pool(hist, limits, 1e-6).efficiency
    narrowest = size_pool(hist, limits, 1 - 1e-9).efficiency
    best = min(max(target, widest), narrowest)
    padded_tokens = int(hist.lengths @ hist.counts) / best
    assert reached == pytest.approx(best, abs=max(0.01, best * max_tokens / padded_tokens / 2))


def test_a_lower_target_means_wider_pools_and_fewer_repeats():
    """The trade that the setting is there for."""
    lengths = run_lengths(10)
    hist = LengthHistogram.from_lengths(lengths)
    targets = [0.8, 0.9, 0.95, 0.98]
    sizes = [size_pool(hist, LIMITS, target) for target in targets]
    repeats = [two_epochs(lengths, target_efficiency=target)[1] for target in targets]
    assert all((a.slots >= b.slots).all() for a, b in pairwise(sizes))
    assert repeats == sorted(repeats)


@pytest.mark.parametrize("lengths", [[5], [7] * 100, [1, 2**32 - 1], list(range(1, 50))])
@pytest.mark.parametrize("target", [None, 0.05, 0.999])
def test_degenerate_data_still_gets_a_pool(lengths, target):
    """One sample, one length, two at the ends of the range: no division by zero, slots >= 1."""
    limits = BatchLimits(2**32, 8)
    sizes = size_pool(LengthHistogram.from_lengths(lengths), limits, target)
    assert (sizes.slots >= 1).all()
    assert 0 < sizes.efficiency <= 1
