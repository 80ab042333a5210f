"""The expected time of an epoch: by hand, and against many plans."""

import numpy as np
import pytest

from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import StepTime, TableTime
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.errors import ConfigError, OversizeError
from lengthwise.predict import Timing, predict_expected, predict_plan
from support.planning import heavy_tail
from support.twins_predict import StubFit

COST = StepTime(fixed_seconds=0.02, seconds_per_token=1e-4, seconds_per_token_squared=1e-7)
LIMITS = BatchLimits(4000, 32)
LENGTHS = heavy_tail(20_000)
HIST = LengthHistogram.from_lengths(LENGTHS)
TABLE = TableTime(
    tokens=(0, 1000, 4000),
    longest=(10, 1000),
    seconds=((0.02, 0.1, 0.5), (0.03, 0.2, 0.7)),
)


def plans(boundaries, num_replicas=1, epochs=8):
    config = BatchingConfig(limits=LIMITS, boundaries=boundaries)
    planner = Planner(LENGTHS, config, num_replicas=num_replicas)
    return [planner.plan(epoch) for epoch in range(epochs)]


def test_equal_lengths_are_plain_arithmetic():
    """12 samples of 10 tokens, 4 to a batch: 3 batches of 0.5 + 0.01 * 40 + 0.001 * 4 * 100."""
    cost = StepTime(fixed_seconds=0.5, seconds_per_token=0.01, seconds_per_token_squared=0.001)
    found = predict_expected(LengthHistogram.from_counts([10], [12]), BatchLimits(40), None, cost)
    assert found.basis == "expected"
    assert found.num_batches == 3
    assert found.seconds == pytest.approx(3 * 1.3)
    expected = {
        "overhead": 1.5, "tokens": 1.2, "padding": 0, "attention": 1.2, "padding_attention": 0,
        "waiting": 0, "synchronising": 0,
    }  # fmt: skip
    assert found.parts == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("boundaries", [(0, 1001), (0, 20, 60, 1001)])
@pytest.mark.parametrize("cost", [COST, TABLE], ids=["formula", "table"])
def test_expectation_and_plans_agree_within_half_a_percent(boundaries, cost):
    """A plan's seconds vary around their expectation; over eight epochs of some 300 batches and
    more the mean is within 0.5 % of it, and so are the parts, as shares of the epoch (1 % for a
    table, whose parts are split as in one plan)."""
    found = predict_expected(HIST, LIMITS, boundaries, cost)
    planned = [predict_plan(plan, LENGTHS, cost) for plan in plans(boundaries)]
    mean = np.mean([one.seconds for one in planned])
    assert found.seconds == pytest.approx(mean, rel=0.005)
    for name, value in found.parts.items():
        of_plans = np.mean([one.parts[name] for one in planned])
        assert value == pytest.approx(of_plans, abs=(0.005 if cost is COST else 0.01) * mean)


def test_replicas_wait_in_expectation_as_they_do_in_plans():
    """The wait comes from one plan of the same lengths in the same order, so it agrees closely."""
    edges = (0, 20, 60, 1001)
    found = predict_expected(HIST, LIMITS, edges, COST, num_replicas=4)
    planned = [predict_plan(plan, LENGTHS, COST) for plan in plans(edges, 4)]
    waiting = np.mean([one.rank_imbalance for one in planned])
    assert waiting > 0.01
    assert found.rank_imbalance == pytest.approx(waiting, rel=0.15)
    assert found.seconds == pytest.approx(np.mean([one.seconds for one in planned]), rel=0.01)


def test_a_data_set_too_large_to_plan_is_thinned_for_the_wait_alone():
    """A billion samples: the expectation is exact at any size, the wait is that of a part."""
    large = LengthHistogram(HIST.lengths, HIST.counts * 50_000)
    small = predict_expected(HIST, LIMITS, (0, 20, 60, 1001), COST, num_replicas=4)
    found = predict_expected(large, LIMITS, (0, 20, 60, 1001), COST, num_replicas=4)
    assert found.real_tokens == 50_000 * small.real_tokens
    assert found.seconds == pytest.approx(50_000 * small.seconds, rel=0.01)


def test_the_interval_is_the_fits_for_the_batches_of_one_plan():
    """The stub's interval is 0.8 to 1.5 times any sum; meetings are known exactly."""
    fit = StubFit(COST)
    timing = Timing(level=0.5, sync_seconds=0.1)
    found = predict_expected(HIST, LIMITS, (0, 60, 1001), fit, timing=timing)
    meeting = found.parts["synchronising"]
    assert meeting == pytest.approx(0.1 * np.ceil(found.num_batches))
    assert found.low == pytest.approx(0.8 * (found.seconds - meeting) + meeting)
    assert found.high == pytest.approx(1.5 * (found.seconds - meeting) + meeting)
    sizes, longest, level = fit.asked[0]
    assert level == 0.5
    batches = plans((0, 60, 1001), epochs=1)[0].batches
    assert np.multiply(sizes, longest).sum() == pytest.approx(batches.padded_tokens.sum(), rel=0.01)


def test_padding_to_the_boundary_is_computed_and_paid():
    plain = predict_expected(HIST, LIMITS, (0, 60, 1001), COST)
    padded = predict_expected(HIST, LIMITS, (0, 60, 1001), COST, pad_to_boundary=True)
    assert padded.parts["padding"] > plain.parts["padding"]
    assert padded.parts["tokens"] == plain.parts["tokens"]


def test_boundaries_must_cover_and_samples_must_fit():
    with pytest.raises(ConfigError, match="the longest sample has"):
        predict_expected(HIST, LIMITS, (0, 10), COST)
    with pytest.raises(OversizeError):
        predict_expected(HIST, BatchLimits(100), None, COST)
