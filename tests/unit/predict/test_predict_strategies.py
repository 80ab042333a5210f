"""Strategies side by side: the plans are those of the planner, the figures those of one plan."""

import numpy as np
import pytest

from lengthwise.compare.strategies import compare_strategies
from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import StepTime
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.errors import PlanError
from lengthwise.predict import predict_plan, predict_strategies, usual_strategies
from support.planning import heavy_tail

COST = StepTime(fixed_seconds=0.02, seconds_per_token=1e-4)
LIMITS = BatchLimits(4000, 32)
LENGTHS = heavy_tail(2000)


def test_the_usual_ones_are_those_that_are_compared():
    """Padding of each is what `compare_strategies` finds for the same lengths and limits."""
    compared = compare_strategies(LENGTHS, LIMITS, 4, num_replicas=2, frontier=False).strategies
    usual = usual_strategies(LENGTHS, LIMITS, 4)
    found = predict_strategies(LENGTHS, usual, COST, num_replicas=2)
    assert list(found) == ["sorted", "random", "bucketed", "windowed", "pooled"]
    for name, one in found.items():
        assert one.prediction.padded_tokens == compared[name].padded_tokens
        assert one.label == compared[name].label


def test_each_is_the_prediction_of_its_own_plan():
    config = BatchingConfig(limits=LIMITS, num_buckets=3, seed=5)
    found = predict_strategies(LENGTHS, {"mine": ("my own", config)}, COST, num_replicas=3)["mine"]
    plan = build_plan(LENGTHS, config, num_replicas=3)
    assert found.prediction == predict_plan(plan, LENGTHS, COST)
    assert found.config == plan.config
    assert found.to_dict()["config"]["boundaries"] == list(plan.config.boundaries)


def test_boundaries_of_ones_own_stand_beside_the_others():
    usual = usual_strategies(LENGTHS, LIMITS, 4, boundaries=(0, 100, 1001))
    assert usual["given"][1].boundaries == (0, 100, 1001)


def test_in_expectation_only_what_has_one_is_expected():
    """Bucketed and random batches have an exact expectation; the others are planned. Batches of
    fixed sizes, dropped or numbered ones have none."""
    usual = usual_strategies(LENGTHS, LIMITS, 4)
    usual["fixed"] = (
        "fixed sizes",
        BatchingConfig(limits=LIMITS, strategy="random", batch_sizing="fixed"),
    )
    found = predict_strategies(LENGTHS, usual, COST, in_expectation=True)
    basis = {name: one.prediction.basis for name, one in found.items()}
    assert basis == {
        "sorted": "plan", "random": "expected", "bucketed": "expected", "windowed": "plan",
        "pooled": "plan", "fixed": "plan",
    }  # fmt: skip
    planned = predict_strategies(LENGTHS, usual, COST)
    for name in ("random", "bucketed"):
        assert found[name].prediction.seconds == pytest.approx(
            planned[name].prediction.seconds, rel=0.03
        )


def test_progress_counts_the_strategies():
    seen = []
    usual = usual_strategies(LENGTHS, LIMITS, 4)
    predict_strategies(LENGTHS, usual, COST, progress=lambda *what: seen.append(what))
    assert seen == [(done, 5, "strategies") for done in range(5)]


def test_no_samples_are_an_error():
    with pytest.raises(PlanError, match="no samples"):
        usual_strategies(np.array([], np.int64), LIMITS)
