"""Workloads and machines: made from plans, and refused where they cannot be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import StepTime
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.core.remix import remix
from lengthwise.errors import ConfigError
from lengthwise.simulate import (
    Machines,
    StepNeeds,
    Workload,
    workload_of_batches,
    workload_of_remix,
)
from lengthwise.simulate.builders import largest_parts

TARGET = StepTime(fixed_seconds=0.5, seconds_per_token=1e-3, seconds_per_token_squared=1e-6)
DRAFTER = StepTime(fixed_seconds=0.25, seconds_per_token=2e-3)


@pytest.fixture(scope="module")
def plan():
    lengths = np.random.default_rng(1).integers(1, 200, 400)
    config = BatchingConfig(limits=BatchLimits(1_000, 12), strategy="random")
    return lengths, Planner(lengths, config).plan(0).batches


def test_batches_that_stay_as_they_are_cost_what_the_models_say(plan):
    # Each batch by hand: samples x longest, and the dearest of three is a step of three ranks.
    lengths, batches = plan
    workload = workload_of_batches(
        batches, TARGET, DRAFTER, bytes_per_token=7, batches_per_step=3, feed_seconds=0.1
    )
    drafter = []
    for index in range(len(batches)):
        own = lengths[batches.batch(index)]
        tokens, longest = len(own) * int(own.max()), int(own.max())
        assert workload.arrival_seconds[index] == pytest.approx(
            0.5 + 1e-3 * tokens + 1e-6 * tokens * longest
        )
        assert workload.arrival_tokens[index] == own.sum()
        assert workload.arrival_bytes[index] == own.sum() * 7
        drafter.append(0.25 + 2e-3 * tokens)
    groups = [range(first, min(first + 3, len(batches))) for first in range(0, len(batches), 3)]
    assert workload.num_steps == len(groups)
    for step, group in enumerate(groups):
        assert workload.step_seconds[step] == pytest.approx(max(drafter[at] for at in group))
        assert workload.step_bytes[step] == sum(workload.arrival_bytes[at] for at in group)
        assert workload.needs_of(step).tolist() == list(group)
        assert workload.step_ready[step] == group[-1]
    assert set(workload.feed_seconds.tolist()) == {0.1}


def test_steps_that_draw_from_a_pool_need_the_batches_their_samples_came_in(plan):
    # Found by looking every sample up; bytes are whole pages, and a step is dealt to two ranks.
    lengths, batches = plan
    mix = remix(batches, lengths, lengths, pool_tokens=4_000, step_cost=1_500)
    workload = workload_of_remix(
        mix, lengths, TARGET, DRAFTER, bytes_per_token=3, num_drafters=2, page_tokens=16
    )
    came_in = {
        int(sample): index
        for index in range(len(batches))
        for sample in batches.batch(index).tolist()
    }
    room = [-(-int(length) // 16) * 16 * 3 for length in lengths]
    for index in range(len(batches)):
        assert workload.arrival_bytes[index] == sum(room[at] for at in batches.batch(index))
    for step in range(mix.num_steps):
        samples = mix.step(step).tolist()
        needed = sorted({came_in[sample] for sample in samples})
        assert workload.needs_of(step).tolist() == needed
        assert workload.step_ready[step] == needed[-1]
        assert workload.step_bytes[step] == sum(room[sample] for sample in samples)
        part = max(int(lengths[own].sum()) for own in mix.for_ranks(step, 2))
        assert workload.step_seconds[step] == pytest.approx(0.25 + 2e-3 * part)
    assert workload.step_bytes.sum() == workload.arrival_bytes.sum()


@pytest.mark.parametrize("num_drafters", [1, 2, 3, 7, 40])
def test_the_largest_part_of_a_step_is_that_of_the_deal_to_the_ranks(plan, num_drafters):
    # The pipeline deals by `for_ranks`, in plain Python; costs are capped, as anchors are, so that
    # ranks of equal cost have unequal tokens, and many samples cost the same.
    lengths, batches = plan
    costs = np.minimum(lengths, 64)
    mix = remix(batches, lengths, costs, pool_tokens=4_000, step_cost=900)
    expected = [
        max(int(lengths[own].sum()) for own in mix.for_ranks(step, num_drafters))
        for step in range(mix.num_steps)
    ]
    assert largest_parts(mix, lengths, num_drafters).tolist() == expected


def test_slower_work_is_slower_and_otherwise_the_same(plan):
    workload = workload_of_batches(plan[1], TARGET, DRAFTER, bytes_per_token=1)
    slower = workload.scaled(target=2.0, drafter=3.0)
    assert np.array_equal(slower.arrival_seconds, 2 * workload.arrival_seconds)
    assert np.array_equal(slower.step_seconds, 3 * workload.step_seconds)
    assert np.array_equal(slower.step_ready, workload.step_ready)


def small(**changes):
    """Two batches and two steps."""
    values = {
        "arrival_seconds": [1.0, 2.0],
        "arrival_bytes": np.array([10, 20]),
        "arrival_tokens": np.array([1, 2]),
        "step_seconds": [1.0, 1.0],
        "step_ready": np.array([0, 1]),
        "step_bytes": np.array([10, 20]),
    }
    return Workload(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_seconds": [1.0, -2.0]}, "finite and not negative; number 1 is -2"),
        ({"step_seconds": [math.nan, 1.0]}, "step_seconds must be finite"),
        ({"arrival_bytes": np.array([1.5, 2.0])}, "arrival_bytes must be one row of whole"),
        ({"arrival_tokens": np.array([1, -1])}, "arrival_tokens must not be negative; number 1"),
        ({"arrival_tokens": np.array([1])}, "as many numbers as arrival_seconds, 2; got 1"),
        ({"step_ready": np.array([0, 2])}, "step 1 needs arrival 2; there are 2"),
        ({"step_bytes": np.array([11, 0])}, "by step 0 more bytes are freed than have come"),
        ({"arrival_seconds": []}, "at least one number"),
        (
            {"step_needs": StepNeeds(np.array([0]), np.array([0, 1, 1]))},
            "at least one arrival for each step",
        ),
        (
            {"step_needs": StepNeeds(np.array([0, 0]), np.array([0, 1, 2]))},
            "step_ready must be the last arrival of each step",
        ),
    ],
)
def test_a_workload_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_targets": 0}, "num_targets must be from 1"),
        ({"num_drafters": 1.5}, "num_drafters must be an integer"),
        ({"prefetch_batches": 0}, "prefetch_batches must be from 1"),
        ({"channel_bytes": -1}, "channel_bytes must be from 0"),
        ({"transfer_bytes_per_second": 0.0}, "transfer_bytes_per_second must be a number above 0"),
        ({"target_speeds": (1.0,)}, "one number for each of num_targets=2"),
        ({"target_speeds": (1.0, math.nan)}, "target_speeds must be a number above 0"),
    ],
)
def test_machines_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Machines(**({"num_targets": 2} | changes))


def test_room_for_batches_ahead_is_that_of_the_largest():
    # Without any ahead both batches must fit one after the other: 20 bytes; 20 more for one.
    assert small().least_channel_bytes == 20
    assert small().channel_bytes(1) == 40
    assert small().channel_bytes(9) == 50
