"""The curve over the number of buckets, and the number it recommends."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.curve import WORTHWHILE, optimize_curve
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import ConfigError

LIMITS = BatchLimits(2000, 16)


@pytest.fixture(scope="module")
def hist():
    lengths = list(range(20, 1000, 3))
    return LengthHistogram.from_counts(lengths, [1 + 3000 // length for length in lengths])


@pytest.fixture(scope="module")
def curve(hist):
    return optimize_curve(hist, LIMITS, 16)


def test_every_number_of_buckets_has_what_the_single_search_finds(hist, curve):
    assert len(curve) == 16
    for number in (1, 2, 5, 16):
        alone = optimize_boundaries(hist, LIMITS, number)
        assert curve[number].cost == pytest.approx(alone.cost, rel=1e-9)
        assert curve[number].boundaries == alone.boundaries


def test_more_buckets_never_cost_more(curve):
    costs = [bucketing.cost for bucketing in curve.bucketings]
    assert costs == sorted(costs, reverse=True)


def test_the_recommendation_is_the_first_whose_doubling_saves_too_little(curve):
    """The rule as the docs state it, applied to the curve by hand."""
    number = curve.recommended
    saved = [1 - curve[2 * k].cost / curve[k].cost for k in range(1, number + 1) if 2 * k <= 16]
    assert all(share >= WORTHWHILE for share in saved[: number - 1])
    if 2 * number <= 16:
        assert saved[number - 1] < WORTHWHILE
    assert f"K = {number} keeps {100 * curve.best.efficiency:.1f} %" in curve.reason


def test_one_bucket_is_recommended_for_equal_lengths():
    flat = optimize_curve(LengthHistogram.from_lengths([9] * 100), LIMITS, 8)
    assert flat.recommended == 1
    assert flat.best.efficiency == 1.0
    assert all(bucketing.num_buckets == 1 for bucketing in flat.bucketings)


def test_a_curve_that_still_falls_recommends_its_end(hist):
    """Two buckets save far more than 2.5 % over one, and nothing beyond two is known."""
    short = optimize_curve(hist, LIMITS, 2)
    assert short.recommended == 2
    assert "every doubling up to there" in short.reason


def test_a_curve_is_plain_json(curve):
    values = json.loads(json.dumps(curve.to_dict()))
    assert [entry["wanted"] for entry in values["curve"]] == list(range(1, 17))
    assert values["recommended"] == curve.recommended


def test_places_outside_the_curve_are_refused(curve):
    for number in (0, 17):
        with pytest.raises(IndexError, match="1 to 16"):
            curve[number]
    with pytest.raises(ConfigError, match="max_buckets"):
        optimize_curve(LengthHistogram.from_lengths([1]), LIMITS, 0)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.sampled_from(["padding", "steps"]),
    st.booleans(),
)
@settings(max_examples=30)
def test_a_curve_falls_for_every_objective(lengths, objective, ceiling):
    curve = optimize_curve(
        LengthHistogram.from_lengths(lengths),
        BatchLimits(120, 8),
        6,
        objective,
        pad_to_boundary=ceiling,
    )
    costs = [bucketing.cost for bucketing in curve.bucketings]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(costs))
