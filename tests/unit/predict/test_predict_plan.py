"""The time of a planned epoch: against a plain walk over its batches, and by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import PaddedTokens, StepTime, TableTime
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.errors import ConfigError, PlanMismatchError
from lengthwise.predict import Timing, predict_plan
from support.configs import cases
from support.planning import plan_or_none
from support.twins_predict import StubFit, follow_plan

COEFFICIENTS = (0.5, 0.01, 0.0001)
COST = StepTime(fixed_seconds=0.5, seconds_per_token=0.01, seconds_per_token_squared=0.0001)
LENGTHS = [3, 9, 5, 7, 2, 8, 4, 6, 10, 1]


def plan_of(lengths=LENGTHS, max_tokens=20, num_replicas=1, **settings):
    config = BatchingConfig(limits=BatchLimits(max_tokens), **settings)
    return build_plan(lengths, config, num_replicas=num_replicas)


@given(cases(), st.sampled_from([1, 2, 3]), st.sampled_from([0.0, 0.25]))
def test_the_clock_and_its_parts_are_those_of_a_walk_over_the_batches(case, every, meeting):
    """The walk adds one sample after another, without arrays, sums of squares or differences."""
    plan = plan_or_none(case)
    assume(plan is not None)
    assume(not case.config.pad_to_boundary)  # the walk pads to the longest of each batch
    most = case.config.limits.longest_allowed
    counted = case.lengths
    if case.config.oversize == "truncate":
        counted = [min(length, most) for length in case.lengths]
    timing = Timing(sync_every=every, sync_seconds=meeting)
    found = predict_plan(plan, case.lengths, COST, timing)
    clock, parts = follow_plan(plan, counted, COEFFICIENTS, every, meeting)
    assert found.seconds == pytest.approx(clock, rel=1e-9)
    assert found.parts == pytest.approx(parts, rel=1e-9, abs=1e-9 * clock)
    assert math.fsum(found.parts.values()) == pytest.approx(found.seconds, rel=1e-12)
    assert found.rank_imbalance == pytest.approx(parts["waiting"] / clock, abs=1e-9)


def test_padding_to_a_boundary_counts_as_padding():
    """[3, 4] in a bucket up to 9, one batch: 2 samples x 9 tokens; 18 - 7 of them are padding."""
    config = BatchingConfig(limits=BatchLimits(30), boundaries=(0, 10), pad_to_boundary=True)
    plan = build_plan([3, 4, 9], config)
    assert plan.num_batches == 1
    found = predict_plan(plan, [3, 4, 9], StepTime(seconds_per_token=1.0))
    assert found.seconds == 27
    assert found.parts["tokens"] == 16
    assert found.parts["padding"] == 11


def test_a_step_lasts_as_long_as_its_slowest_replica():
    """Sorted, one batch each: 2 samples of 10 tokens and 4 of 5 tokens, both 20 tokens; attention
    costs 2 * 10^2 = 200 and 4 * 5^2 = 100. The clock shows 200, a replica works 150 on average."""
    plan = plan_of([10, 10, 5, 5, 5, 5], strategy="sorted", num_replicas=2)
    found = predict_plan(plan, [10, 10, 5, 5, 5, 5], StepTime(seconds_per_token_squared=1.0))
    assert plan.num_steps == 1
    assert found.seconds == 200
    assert found.parts["waiting"] == 50
    assert found.rank_imbalance == 0.25
    assert found.tokens_per_second == 40 / 200


def test_replicas_that_meet_once_in_several_steps_even_out():
    """With every step apart the slowest of each counts; over the epoch only the slowest sum."""
    plan = plan_of([1, 2, 3, 4, 5, 6, 7, 8] * 5, strategy="random", num_replicas=2)
    each = predict_plan(plan, [1, 2, 3, 4, 5, 6, 7, 8] * 5, COST)
    rare = predict_plan(plan, [1, 2, 3, 4, 5, 6, 7, 8] * 5, COST, Timing(sync_every=10**6))
    assert rare.parts["waiting"] < each.parts["waiting"]
    assert rare.parts["tokens"] == each.parts["tokens"]


def test_totals_are_the_plans_own():
    plan = plan_of(num_replicas=2)
    found = predict_plan(plan, LENGTHS, COST)
    assert found.basis == "plan"
    assert found.real_tokens == plan.stats.real_tokens == sum(LENGTHS)
    assert found.padded_tokens == plan.stats.padded_tokens
    assert found.num_batches == plan.num_batches
    assert found.num_steps == plan.num_steps
    assert found.efficiency == plan.stats.efficiency
    assert found.padded_tokens_per_second == plan.stats.padded_tokens / found.seconds
    shapes = set(zip(plan.batches.sizes.tolist(), plan.batches.padded.tolist(), strict=True))
    assert found.num_shapes == len(shapes)


def test_the_interval_is_the_fits_for_the_batches_that_the_clock_follows():
    """Of the step above the clock follows the batch of 2 x 10 only; meetings are known exactly."""
    plan = plan_of([10, 10, 5, 5, 5, 5], strategy="sorted", num_replicas=2)
    fit = StubFit(StepTime(seconds_per_token_squared=1.0))
    timing = Timing(level=0.7, sync_seconds=3.0)
    found = predict_plan(plan, [10, 10, 5, 5, 5, 5], fit, timing)
    assert fit.asked == [([2], [10], 0.7)]
    assert found.seconds == 203
    assert found.low == pytest.approx(0.8 * 200 + 3)
    assert found.high == pytest.approx(1.5 * 200 + 3)
    assert found.tokens_per_second_low == pytest.approx(40 / 303)
    assert found.tokens_per_second_high == pytest.approx(40 / 163)
    assert found.level == 0.7


def test_time_beyond_the_measured_shapes_is_told():
    """Measured up to 12 tokens in a batch and 6 in a sample. Batches here: 1 x 12 is too long,
    4 x 5 = 20 tokens too large, 2 x 6 inside; 12 + 20 of 44 tokens, at a second each."""
    plan = plan_of([12, 5, 5, 5, 5, 6, 6], boundaries=(0, 6, 7, 13))
    shapes = sorted(zip(plan.batches.sizes.tolist(), plan.batches.padded.tolist(), strict=True))
    assert shapes == [(1, 12), (2, 6), (4, 5)]
    fit = StubFit(StepTime(seconds_per_token=1.0))
    found = predict_plan(plan, [12, 5, 5, 5, 5, 6, 6], fit)
    assert found.extrapolated == pytest.approx(32 / 44)


def test_a_cost_model_alone_has_no_interval():
    found = predict_plan(plan_of(), LENGTHS, COST)
    assert found.extrapolated is None
    assert (found.low, found.high) == (None, None)
    assert (found.tokens_per_second_low, found.tokens_per_second_high) == (None, None)


def test_a_table_says_what_padding_adds():
    """A table that is linear in tokens is a step time without a fixed part: the same split."""
    table = TableTime(tokens=(0, 100), longest=(1,), seconds=((0.0, 1.0),))
    plan = plan_of(strategy="random")
    by_table = predict_plan(plan, LENGTHS, table)
    by_formula = predict_plan(plan, LENGTHS, StepTime(seconds_per_token=0.01))
    assert set(by_table.parts) == {"tokens", "padding", "waiting", "synchronising"}
    for name, value in by_table.parts.items():
        assert value == pytest.approx(by_formula.parts[name])


def test_any_function_of_size_and_longest_will_do():
    """Padded tokens as seconds: real tokens are what is not padding."""
    found = predict_plan(plan_of(), LENGTHS, PaddedTokens())
    assert found.parts["tokens"] == pytest.approx(sum(LENGTHS))
    assert found.seconds == found.padded_tokens


def test_a_plan_of_other_lengths_is_refused():
    plan = plan_of()
    with pytest.raises(PlanMismatchError, match="tokens by the plan"):
        predict_plan(plan, [length + 1 for length in LENGTHS], COST)
    with pytest.raises(PlanMismatchError, match="there are 9 lengths"):
        predict_plan(plan, LENGTHS[:-1], COST)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ("fast", "a fit"),
        (lambda n, m: n * np.nan, "finite"),
        (lambda n, m: n[:-1], "one cost for each batch"),
    ],
)
def test_costs_that_are_none_are_refused(cost, words):
    with pytest.raises(ConfigError, match=words):
        predict_plan(plan_of(), LENGTHS, cost)


@pytest.mark.parametrize(
    "settings",
    [
        {"level": 0.0},
        {"level": 1.0},
        {"sync_every": 0},
        {"sync_seconds": -1.0},
        {"sync_seconds": float("nan")},
        {"seconds_per_shape": float("inf")},
    ],
)
def test_timings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Timing(**settings)


def test_a_dict_has_everything():
    found = predict_plan(plan_of(), LENGTHS, COST).to_dict()
    assert found["tokens_per_second"] == pytest.approx(sum(LENGTHS) / found["seconds"])
    assert found["num_steps"] == found["num_batches"]
    assert found["parts"]["waiting"] == 0


def test_part_of_a_plan_can_be_predicted():
    """The first two batches of a plan, as a plan: what a slice of an epoch takes."""
    plan = plan_of()
    part = replace(plan, source=plan.batches.select(np.arange(2)))
    found = predict_plan(part, LENGTHS, COST)
    costs = COST(plan.batches.sizes[:2], plan.batches.padded[:2])
    assert found.seconds == pytest.approx(costs.sum())
    assert found.num_batches == 2
