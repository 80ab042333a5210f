"""Diversity of a plan: each number against its definition, closed forms, and the empty cases."""

import json
from itertools import pairwise
from math import isfinite

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.diversity import (
    design_effect,
    length_spread,
    measure_diversity,
    num_shapes,
    order_correlation,
    partner_repeat_rate,
    replica_balance,
    step_variation,
    utilization,
)
from lengthwise.errors import ConfigError, DataError, PlanError
from support import oracles_diversity as oracle
from support.oracles_diversity import make_batches


@st.composite
def plans(draw, count=2):
    """``count`` partitions of one data set, each leaving out some samples, and the lengths."""
    num_samples = draw(st.integers(1, 30))
    values = st.integers(1, draw(st.sampled_from([2, 50, 2**40])))
    lengths = draw(st.lists(values, min_size=num_samples, max_size=num_samples))
    made = []
    for _ in range(count):
        samples = draw(st.permutations(range(num_samples)))
        kept = draw(st.integers(1, num_samples))
        cuts = sorted(draw(st.sets(st.integers(1, kept), max_size=12)) - {kept})
        edges = [0, *cuts, kept]
        groups = [samples[lo:hi] for lo, hi in pairwise(edges)]
        made.append((groups, make_batches(groups, lengths, samples[kept:])))
    return lengths, made


@given(plans())
def test_the_repeat_rate_counts_pairs_as_sets_do(case):
    """By definition: pairs of the first epoch that are pairs of the second. Exact, so equal."""
    _, ((groups, batches), (next_groups, next_batches)) = case
    assert partner_repeat_rate(batches, next_batches) == oracle.repeat_rate(groups, next_groups)


@given(plans(count=1))
def test_frozen_batches_repeat_every_pair(case):
    """The same partition again, whatever the order of its batches: rate 1."""
    _, ((groups, batches),) = case
    again = batches.select(np.arange(len(batches))[::-1])
    expected = 1.0 if max(map(len, groups)) > 1 else 0.0
    assert partner_repeat_rate(batches, again) == expected


def test_batches_that_share_no_pair_repeat_none():
    """Rows against columns of a 3 x 3 table: two samples share a row or a column, never both."""
    rows = make_batches([[0, 1, 2], [3, 4, 5], [6, 7, 8]], [1] * 9)
    columns = make_batches([[0, 3, 6], [1, 4, 7], [2, 5, 8]], [1] * 9)
    assert partner_repeat_rate(rows, columns) == 0.0


def test_random_batches_repeat_as_often_as_chance_says():
    """A pair meets again with probability (n - 1) / (N - 1) = 9 / 9,999; 45,000 pairs."""
    lengths = [1] * 10_000
    plans = [
        make_batches(np.random.default_rng(seed).permutation(10_000).reshape(-1, 10), lengths)
        for seed in (1, 2)
    ]
    repeats = partner_repeat_rate(*plans) * 45_000
    assert abs(repeats - 40.5) < 5 * np.sqrt(40.5)


@given(plans(count=1), st.integers(1, 4))
def test_order_correlation_is_pearsons_of_neighbours(case, stride):
    """The standard library's correlation of the pairs (t, t + stride) is the oracle."""
    lengths, ((groups, batches),) = case
    expected = oracle.lag_correlation(groups, lengths, stride)
    assert order_correlation(batches, lengths, stride) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("lengths", "stride", "expected"),
    [
        ([3, 9] * 10, 1, -1.0),
        ([3, 9] * 10, 2, 1.0),
        ([3, 9, 9, 3] * 10, 2, -1.0),
        (list(range(1, 21)), 1, 1.0),
        ([7] * 20, 1, 0.0),
        ([7], 1, 0.0),
        ([7, 8], 1, 0.0),
    ],
)
def test_order_correlation_of_known_orders(lengths, stride, expected):
    """Alternating is -1, a stair is 1; without variation, or with one pair, it is 0.

    With stride 2, two replicas of which one always runs short and one always long batches: 1.
    """
    batches = make_batches([[i] for i in range(len(lengths))], lengths)
    assert order_correlation(batches, lengths, stride) == pytest.approx(expected, abs=1e-12)


@given(plans(count=1))
def test_length_spread_is_the_mean_deviation_inside_over_the_data_sets(case):
    """Samples outside the batches count for neither side."""
    lengths, ((groups, batches),) = case
    expected = oracle.spread(groups, lengths)
    assert length_spread(batches, lengths) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_length_spread_knows_its_ends():
    """One batch is the data set itself: 1. Batches of one length each: 0."""
    lengths = [1, 5, 1, 5]
    assert length_spread(make_batches([[0, 1, 2, 3]], lengths), lengths) == pytest.approx(1.0)
    assert length_spread(make_batches([[0, 2], [1, 3]], lengths), lengths) == 0.0


@given(plans(count=1), st.integers(1, 5))
def test_design_effect_is_its_definition_in_exact_fractions(case, per_step):
    """Fractions know no rounding; the incomplete last step is left out on both sides."""
    lengths, ((groups, batches),) = case
    expected = oracle.effect(groups, lengths, per_step)
    found = design_effect(batches, lengths, per_step)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_random_batches_have_a_design_effect_of_one():
    """20,000 batches of 10: the mean of as many squared normals, so within 5 % of 1."""
    rng = np.random.default_rng(5)
    lengths = rng.lognormal(3, 0.5, 200_000).astype(np.int64) + 1
    batches = make_batches(rng.permutation(200_000).reshape(-1, 10), lengths)
    assert design_effect(batches, lengths, 1) == pytest.approx(1.0, abs=0.05)
    assert design_effect(batches, lengths, 8) == pytest.approx(1.0, abs=0.15)


def test_batches_of_one_length_each_have_their_size_as_design_effect():
    """E[(n (x - mu))**2] / (sigma**2 n) = n: n samples say no more than one."""
    lengths = np.repeat([10, 20, 70], 12)
    batches = make_batches(np.arange(36).reshape(-1, 6), lengths)
    assert design_effect(batches, lengths, 1) == pytest.approx(6.0)


def test_steps_that_mirror_the_data_set_have_a_design_effect_of_zero():
    """Each step of two batches has each length once."""
    lengths = [10, 70, 70, 10, 10, 70]
    batches = make_batches([[i] for i in range(6)], lengths)
    assert design_effect(batches, lengths, 2) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e300])
def test_the_unit_of_a_quantity_does_not_matter(scale):
    """A ratio of squares: 1e300 squared overflows, 1e-300 squared vanishes, if one is careless."""
    values = np.array([1.0, -2.0, 4.0, 0.5])
    batches = make_batches([[0, 1], [2, 3]], [1] * 4)
    expected = oracle.effect([[0, 1], [2, 3]], values.tolist(), 1)
    assert design_effect(batches, values * scale, 1) == pytest.approx(expected)


@pytest.mark.parametrize("quantity", [[0.1] * 6, [1e17] * 6, [3] * 6, [0.0] * 6, [True] * 6])
def test_a_constant_quantity_has_nothing_to_represent(quantity):
    """0.1 summed three times is not 0.3: the rounding must not be mistaken for variation."""
    batches = make_batches([[0, 1, 2], [3, 4], [5]], [1] * 6)
    assert design_effect(batches, quantity, 1) == 0.0
    assert length_spread(batches, quantity) == 0.0
    assert order_correlation(batches, quantity) == 0.0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 5))
def test_step_variation_is_deviation_over_mean_of_whole_steps(amounts, per_step):
    """Exact fractions up to the root."""
    found = step_variation(np.array(amounts), per_step)
    assert found == pytest.approx(oracle.variation(amounts, per_step), rel=1e-9, abs=1e-12)


@given(plans(count=1))
def test_shapes_are_distinct_pairs_of_samples_and_padded_length(case):
    """A set of pairs is the definition."""
    _, ((_, batches),) = case
    shapes = set(zip(batches.sizes.tolist(), batches.padded.tolist(), strict=True))
    assert num_shapes(batches) == len(shapes)


@pytest.mark.parametrize(
    ("costs", "num_replicas", "expected"),
    [
        ([4, 2, 3, 3], 2, 0.875),  # (3/4 + 1) / 2
        ([4, 2, 3, 3], 1, 1.0),
        ([4, 2, 3, 3], 4, 0.75),  # 3 / 4
        ([0, 0, 5, 5], 2, 1.0),  # a step of no cost waits for nobody
        ([], 3, 1.0),
        ([1e308, 1e308], 2, 1.0),  # whose sum is beyond floating point
    ],
)
def test_replica_balance_of_known_steps(costs, num_replicas, expected):
    """Mean over steps of mean over maximum, worked out by hand."""
    assert replica_balance(costs, num_replicas) == pytest.approx(expected)


def test_utilization_counts_real_tokens_against_the_budget():
    """6 real tokens in two batches of up to 10."""
    batches = make_batches([[0, 1], [2]], [1, 2, 3])
    assert utilization(batches, 10) == 0.3
    assert utilization(batches.select(np.arange(0)), 10) == 0.0


@given(plans(), st.integers(1, 3), st.integers(1, 3))
def test_measure_diversity_gathers_the_single_numbers(case, num_replicas, accumulation_steps):
    """The record says what each function says alone, and is plain finite JSON."""
    lengths, ((_, batches), (_, next_batches)) = case
    batches = batches.select(np.arange(len(batches) // num_replicas * num_replicas))
    quantity = np.arange(len(lengths)) % 3
    found = measure_diversity(
        batches,
        lengths,
        next_batches=next_batches,
        num_replicas=num_replicas,
        accumulation_steps=accumulation_steps,
        quantity=quantity,
    ).to_dict()
    per_step = num_replicas * accumulation_steps
    whole = len(batches) > 0
    assert found == {
        "partner_repeat_rate": partner_repeat_rate(batches, next_batches),
        "order_correlation": order_correlation(batches, lengths),
        "replica_order_correlation": order_correlation(batches, lengths, num_replicas),
        "length_spread": length_spread(batches, lengths) if whole else 0.0,
        "design_effect": design_effect(batches, lengths, per_step) if whole else 0.0,
        "quantity_design_effect": design_effect(batches, quantity, per_step) if whole else 0.0,
        "step_tokens_cv": step_variation(batches.tokens, per_step),
        "step_samples_cv": step_variation(batches.sizes, per_step),
        "num_shapes": num_shapes(batches),
        "replica_balance": replica_balance(batches.padded_tokens, num_replicas),
        "batches_per_step": per_step,
    }
    assert all(isfinite(value) for value in json.loads(json.dumps(found)).values())


def test_what_was_not_given_is_none_and_costs_are_taken():
    """No next epoch and no quantity: None, which JSON shows as null, and not a made-up 0."""
    batches = make_batches([[0], [1]], [1, 2])
    found = measure_diversity(batches, [1, 2], num_replicas=2, costs=[1.0, 4.0])
    assert found.partner_repeat_rate is None
    assert found.quantity_design_effect is None
    assert found.replica_balance == 0.625  # 2.5 / 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.nan, 2.0], "finite, got nan at position 1"),
        ([1.0, 2.0, np.inf], "finite, got inf at position 2"),
        ([1, 2], "hold sample 2, but the per-sample array has 2 entries"),
        ([[1, 2, 3]], "one dimension"),
        (["a", "b", "c"], "must hold numbers"),
    ],
)
def test_a_quantity_that_fits_not_is_refused(values, message):
    """A kernel that reads beyond an array reads other memory: the check stands before it."""
    batches = make_batches([[0, 1], [2]], [1, 2, 3])
    with pytest.raises(DataError, match=message):
        design_effect(batches, values, 1)


def test_counts_and_costs_that_fit_not_are_refused():
    """Each message names the rule and the value."""
    batches = make_batches([[0, 1], [2], [3]], [1, 2, 3, 4])
    with pytest.raises(PlanError, match="3 batches are no whole number of steps of 2 replicas"):
        measure_diversity(batches, [1, 2, 3, 4], num_replicas=2)
    with pytest.raises(DataError, match="at least 0, got -1"):
        replica_balance([1.0, -1.0], 2)
    with pytest.raises(DataError, match="costs must be finite"):
        replica_balance([1.0, np.nan], 2)
    with pytest.raises(ConfigError, match="batches_per_step must be from 1"):
        design_effect(batches, [1, 2, 3, 4], 0)
