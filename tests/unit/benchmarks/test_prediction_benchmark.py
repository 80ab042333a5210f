"""What the benchmark of predictions says of its figures, and what it cuts out of an epoch."""

import numpy as np
import prediction
import prediction_page
import pytest

import lengthwise as lw
from lengthwise.core.cost import StepTime

LENGTHS = np.random.default_rng(0).integers(5, 200, 3000)
LIMITS = lw.BatchLimits(1000, 16)


def _rows(**figures):
    return {
        name: {"predicted": predicted, "measured": measured}
        for name, (predicted, measured) in figures.items()
    }


def test_a_pair_in_the_wrong_order_is_named_with_how_far_it_is_apart():
    """b is predicted faster than a, and measured 25 % slower; c is right beside both."""
    rows = _rows(a=(90, 100), b=(95, 80), c=(200, 300))
    (pair,) = prediction.swapped(rows)
    assert (pair["slower"], pair["faster"]) == ("b", "a")
    assert pair["apart"] == pytest.approx(0.25)
    assert prediction.swapped(_rows(a=(1, 1), b=(2, 3))) == []


@pytest.mark.parametrize("settings", prediction.STRATEGIES.values(), ids=prediction.STRATEGIES)
def test_a_cut_is_part_of_an_epoch_and_has_the_data_sets_mean_length(settings):
    plan = prediction.cut(LENGTHS, LIMITS, settings, 40)
    samples = np.concatenate(list(plan))
    assert plan.num_batches == 40
    assert np.unique(samples).size == samples.size
    assert LENGTHS[samples].mean() == pytest.approx(LENGTHS.mean(), rel=0.02)


def test_steps_that_take_what_was_predicted_have_no_error():
    """Shapes and batches both timed by one formula, without noise: the fit finds it."""
    cost = StepTime(fixed_seconds=0.01, seconds_per_token=1e-4, seconds_per_token_squared=1e-7)
    shapes = [(1, 20), (4, 20), (2, 100), (8, 100), (1, 199), (5, 199), (16, 50)]
    arms = {"shapes": _timed(shapes, cost)}
    plans = {
        name: prediction.cut(LENGTHS, LIMITS, settings, 20)
        for name, settings in prediction.STRATEGIES.items()
    }
    for name, plan in plans.items():
        pairs = list(zip(plan.batches.sizes, plan.batches.padded, strict=True))
        arms[name] = _timed(pairs, cost)
    found = prediction._result("cpu", arms, shapes, plans, LENGTHS)
    assert found["largest_error"] < 1e-6
    assert found["swapped"] == []
    result = {"a model": {"cpu": found, "num_rounds": 2}}
    lines = prediction_page.table(result).splitlines()
    assert len([line for line in lines if line.startswith("| a model |")]) == 4
    assert lines[-1].startswith("- a model: fitted by the formula; within 0.0 %; the ranking is")


def _timed(shapes, cost):
    arm = prediction.Arm(shapes, 3)
    sizes, longest = np.array(shapes).T
    arm.seconds["cpu"][:] = cost(sizes, longest)
    return arm
