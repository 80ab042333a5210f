"""Cost models: what they return, and what is refused."""

import numpy as np
import pytest

from lengthwise.core.cost import (
    CostModel,
    PaddedTokens,
    Steps,
    StepTime,
    evaluate_model,
    resolve_objective,
)
from lengthwise.errors import ConfigError

SIZES = np.array([1, 2, 64])
LONGEST = np.array([10, 7, 3_000_000_000])


def test_padded_tokens_do_not_wrap_at_32_bits():
    """64 samples of 3e9 tokens are 1.92e11 padded tokens, beyond int32 and exact in float64."""
    assert PaddedTokens()(SIZES, LONGEST).tolist() == [10, 14, 192_000_000_000]


def test_steps_count_one_for_each_batch():
    assert Steps()(SIZES, LONGEST).tolist() == [1, 1, 1]


def test_step_time_is_fixed_plus_linear_plus_attention():
    """0.5 + 0.01 * (2 * 7) + 0.001 * 2 * 7**2 = 0.5 + 0.14 + 0.098."""
    model = StepTime(fixed_seconds=0.5, seconds_per_token=0.01, seconds_per_token_squared=0.001)
    assert model(SIZES, LONGEST)[1] == pytest.approx(0.738)


@pytest.mark.parametrize(
    ("coefficients", "words"),
    [
        ({}, "at least one coefficient"),
        ({"fixed_seconds": -1.0}, "not negative"),
        ({"seconds_per_token": float("nan")}, "finite"),
        ({"seconds_per_token": "much"}, "must be a number"),
    ],
)
def test_step_times_that_make_no_sense_are_refused(coefficients, words):
    with pytest.raises(ConfigError, match=words):
        StepTime(**coefficients)


def test_objectives_have_names():
    def memory(batch_size, longest):
        return batch_size * longest**2.0

    step_time = StepTime(fixed_seconds=1.0)
    assert resolve_objective("padding") == ("padding", PaddedTokens())
    assert resolve_objective(PaddedTokens()) == ("padding", PaddedTokens())
    assert resolve_objective("steps") == ("steps", Steps())
    assert resolve_objective(step_time) == ("seconds", step_time)
    assert resolve_objective(memory) == ("memory", memory)
    assert isinstance(step_time, CostModel)


def test_an_unknown_objective_names_the_known_ones():
    with pytest.raises(ConfigError, match="'padding', 'steps' or a cost model"):
        resolve_objective("speed")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda n, m: np.ones(1), "one cost for each batch"),
        (lambda n, m: n - 5.0, "1 samples padded to 10 tokens cost -4.0"),
        (lambda n, m: n * np.inf, "finite"),
    ],
)
def test_a_model_that_returns_no_costs_is_refused(model, words):
    with pytest.raises(ConfigError, match=words):
        evaluate_model(model, SIZES, LONGEST)
