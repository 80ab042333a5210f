"""The search for the fastest settings: its figures, its bounds, and cases with a known answer."""

import numpy as np
import pytest

from lengthwise.core.cost import StepTime, TableTime
from lengthwise.core.diversity import partner_repeat_rate
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.errors import OversizeError, PlanError
from lengthwise.predict import Timing, optimize_seconds, predict_plan
from support.planning import heavy_tail

LIMITS = BatchLimits(2000, 16)
LENGTHS = heavy_tail(3000)
COST = StepTime(fixed_seconds=0.05, seconds_per_token=1e-4)


@pytest.fixture(scope="module")
def found():
    return optimize_seconds(LENGTHS, LIMITS, COST, num_replicas=2, num_epochs=3)


def test_candidates_are_ranked_by_what_their_plans_take(found):
    """Every figure again from a plan of the candidate's own config."""
    seconds = [candidate.seconds for candidate in found.candidates]
    assert seconds == sorted(seconds)
    for candidate in found.candidates[:3]:
        planner = Planner(LENGTHS, candidate.config, num_replicas=2)
        plan, following = planner.plan(0), planner.plan(1)
        assert candidate.prediction == predict_plan(plan, LENGTHS, COST)
        assert candidate.seconds == pytest.approx(3 * candidate.prediction.seconds)
        rate = partner_repeat_rate(plan.batches, following.batches)
        assert candidate.repeat_rate == rate


def test_no_candidate_exceeds_the_limits_and_labels_are_distinct(found):
    for candidate in found.candidates:
        limits = candidate.config.limits
        assert limits.max_tokens <= 2000
        assert limits.max_batch_size == 16
        assert candidate.config.strategy != "sorted"
    labels = [candidate.label for candidate in found.candidates]
    assert len(set(labels)) == len(labels)


def test_the_best_is_diverse_and_at_most_half_a_percent_from_the_fastest_such(found):
    diverse = [one for one in found.candidates if one.repeat_rate <= found.most_repeats]
    assert found.best in diverse
    assert found.best.diverse
    assert found.best.seconds <= min(one.seconds for one in diverse) * 1.005
    close = [one for one in diverse if one.seconds <= diverse[0].seconds * 1.005]
    assert found.best.repeat_rate == min(one.repeat_rate for one in close)


def test_the_gain_is_over_the_least_padding_within_the_given_limits(found):
    given = [one for one in found.candidates if one.config.limits == LIMITS]
    efficiencies = [one.prediction.efficiency for one in given]
    assert found.least_padding.prediction.efficiency == max(efficiencies)
    assert found.gain == pytest.approx(1 - found.best.seconds / found.least_padding.seconds)


@pytest.mark.parametrize("most", [2, 5, 17])
def test_no_more_settings_are_planned_than_allowed(monkeypatch, most):
    planned = []
    plan = Planner.plan
    monkeypatch.setattr(
        Planner, "plan", lambda self, epoch: planned.append(epoch) or plan(self, epoch)
    )
    found = optimize_seconds(LENGTHS, LIMITS, COST, max_candidates=most)
    assert len(found.candidates) == most
    assert len(planned) == 2 * most  # two epochs each, for the repeat rate


def test_shapes_that_cost_much_make_fixed_shapes_win():
    """At 10 seconds a shape, hundreds of shapes cost more than any padding could."""
    found = optimize_seconds(LENGTHS, LIMITS, COST, timing=Timing(seconds_per_shape=10.0))
    assert found.best.config.pad_to_boundary
    assert found.best.shape_seconds == 10.0 * found.best.prediction.num_shapes
    assert found.best.seconds == pytest.approx(
        found.best.prediction.seconds + found.best.shape_seconds
    )
    assert found.gain > 0.5


def test_a_formula_without_a_price_of_shapes_tries_no_rounding_up(found):
    """More padding never lowers a step time, so such candidates could not win."""
    assert {one.config.limits.pad_to_multiple_of for one in found.candidates} == {1}


def test_a_table_can_make_a_smaller_budget_win():
    """Above 1,000 tokens every token costs ten times as much: full batches are slow ones."""
    steep = TableTime(tokens=(0, 1000, 2000), longest=(1,), seconds=((0.0, 0.1, 1.1),))
    found = optimize_seconds(LENGTHS, LIMITS, steep)
    assert found.best.config.limits.max_tokens == 1000
    assert found.gain > 0.2
    assert 8 in {one.config.limits.pad_to_multiple_of for one in found.candidates}


def test_candidates_hold_every_sample():
    """Half the budget would not hold the longest sample of 900 under max_tokens of 1,000."""
    lengths = np.append(heavy_tail(500, most=400), 900)
    found = optimize_seconds(lengths, BatchLimits(1000), COST)
    assert min(one.config.limits.longest_allowed for one in found.candidates) >= 900


def test_only_the_wanted_number_of_buckets_is_tried():
    found = optimize_seconds(LENGTHS, LIMITS, COST, num_buckets=5)
    buckets = {len(one.config.boundaries) - 1 for one in found.candidates if one.config.boundaries}
    assert buckets == {5}


def test_a_large_data_set_is_thinned_and_times_are_scaled_back(monkeypatch):
    """Thinned to a third of the samples, an epoch takes about as long as the whole one."""
    whole = optimize_seconds(LENGTHS, LIMITS, COST, max_candidates=4)
    monkeypatch.setattr("lengthwise.compare.frontier.MOST_SAMPLES", 1000)
    found = optimize_seconds(LENGTHS, LIMITS, COST, max_candidates=4)
    assert (found.num_samples, found.total_samples) == (1000, 3000)
    by_label = {one.label: one.seconds for one in whole.candidates}
    for one in found.candidates:
        if one.label in by_label:
            assert one.seconds == pytest.approx(by_label[one.label], rel=0.1)


def test_a_dict_names_the_best_by_its_place(found):
    data = found.to_dict()
    assert data["candidates"][data["best"]]["label"] == found.best.label
    assert data["gain"] == found.gain


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(PlanError, match="no samples"):
        optimize_seconds([], LIMITS, COST)
    with pytest.raises(OversizeError):
        optimize_seconds([5000], LIMITS, COST)
