"""Remixing: what enters the pool leaves it once, in steps of equal cost that look like the data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.batches import Batches
from lengthwise.core.config import BatchingConfig
from lengthwise.core.diversity import design_effect
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.remix import remix
from lengthwise.errors import ConfigError, DataError, PlanError
from support.run_batches import MAX_BATCH_SIZE, MAX_TOKENS, run_lengths
from support.twins_remix import remix_twin


def batches_of(lists, lengths):
    sizes = np.array([len(samples) for samples in lists], np.int64)
    order = np.array([sample for samples in lists for sample in samples], np.uint32)
    tokens = np.array([sum(lengths[s] for s in samples) for samples in lists], np.int64)
    longest = np.array([max(lengths[s] for s in samples) for samples in lists], np.int64)
    return Batches(order, np.cumsum(sizes) - sizes, sizes, longest, tokens)


@st.composite
def arrivals(draw):
    """Lists of samples as they arrive, in any order, with any lengths and costs."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    samples = draw(st.permutations(range(sum(sizes))))
    lists, at = [], 0
    for size in sizes:
        lists.append(list(samples[at : at + size]))
        at += size
    whole = st.integers(1, 40)
    lengths = draw(st.lists(whole, min_size=at, max_size=at))
    costs = draw(st.lists(st.integers(1, 9), min_size=at, max_size=at))
    largest = max(sum(lengths[s] for s in batch) for batch in lists)
    pool_tokens = largest + draw(st.integers(0, 200))
    step_cost = max(costs) + draw(st.integers(0, 30))
    return lists, lengths, costs, pool_tokens, step_cost


@settings(max_examples=200, deadline=None)
@given(arrivals(), st.integers(0, 2**40), st.integers(0, 5))
def test_the_plan_is_that_of_a_literal_pool(case, seed, epoch):
    """The twin keeps lists and recounts the pool's tokens at every draw."""
    lists, lengths, costs, pool_tokens, step_cost = case
    plan = remix(
        batches_of(lists, lengths), lengths, costs,
        pool_tokens=pool_tokens, step_cost=step_cost, seed=seed, epoch=epoch,
    )  # fmt: skip
    key = stream_key(seed, epoch, Purpose.REMIX)
    steps, entered = remix_twin(lists, lengths, costs, pool_tokens, step_cost, key)
    assert [plan.step(s).tolist() for s in range(plan.num_steps)] == steps
    assert plan.batches_entered.tolist() == entered


@settings(max_examples=200, deadline=None)
@given(arrivals(), st.integers(1, 4))
def test_each_sample_is_in_one_step_and_never_before_it_arrived(case, num_ranks):
    """Recounted from the lists alone: cover, arrival, bound of the pool, cost of steps."""
    lists, lengths, costs, pool_tokens, step_cost = case
    plan = remix(
        batches_of(lists, lengths), lengths, costs, pool_tokens=pool_tokens, step_cost=step_cost
    )
    taken = [sample for s in range(plan.num_steps) for sample in plan.step(s).tolist()]
    assert sorted(taken) == sorted(sample for batch in lists for sample in batch)
    assert plan.peak_tokens <= pool_tokens
    width = sum(costs) / plan.num_steps
    for s in range(plan.num_steps):
        there = {sample for batch in lists[: plan.batches_entered[s]] for sample in batch}
        step = plan.step(s).tolist()
        assert step
        assert set(step) <= there
        # Both ends are rounded to a sample's middle and a whole cost.
        assert abs(sum(costs[x] for x in step) - width) <= max(costs) + 1
        left = there - set(taken[: taken.index(step[-1]) + 1])
        assert set(plan.waiting(s + 1).tolist()) == left
        assert sum(lengths[x] for x in left) <= pool_tokens
        dealt = plan.for_ranks(s, num_ranks)
        assert sorted(x for part in dealt for x in part.tolist()) == sorted(step)
        loads = [sum(costs[x] for x in part.tolist()) for part in dealt]
        # Dealing the dearest first to whoever has least leaves a gap of one sample at most.
        assert max(loads) - min(loads) <= max(costs[x] for x in step)


@pytest.mark.parametrize(("num_batches", "most"), [(2, None), (16, 1.6), (64, 1.1)])
def test_a_wide_pool_makes_steps_that_look_like_the_data(num_batches, most):
    """The run's lengths in windows, 99 % efficient, one batch after the other.

    A batch by length has a design effect near 30. A step of 64 samples from a pool of k batches
    would have about that over k plus 1 if batches came at random; in balanced order they come
    nearer to the data than that. Two batches are too few for anything to be promised.
    """
    lengths = run_lengths()[:60_000]
    config = BatchingConfig(
        limits=BatchLimits(MAX_TOKENS, MAX_BATCH_SIZE),
        strategy="windowed",
        window_size=8192,
        accumulation_steps=32,
        balance="none",
    )
    batches = build_plan(lengths, config).batches
    costs = np.minimum(lengths, 512)
    plan = remix(batches, lengths, costs, pool_tokens=num_batches * MAX_TOKENS, step_cost=64 * 512)
    effect = design_effect(plan.steps, lengths, 1)
    before = design_effect(batches, lengths, 1)
    assert before > 20
    assert effect < before / 2
    if most is not None:
        assert effect < most


def test_every_epoch_has_as_many_steps_and_mixes_anew():
    lengths, costs = [5, 9, 3, 7, 4, 8], [2, 3, 1, 2, 2, 3]
    batches = batches_of([[0, 1], [2, 3], [4, 5]], lengths)
    plans = [
        remix(batches, lengths, costs, pool_tokens=40, step_cost=4, epoch=epoch)
        for epoch in range(20)
    ]
    assert {plan.num_steps for plan in plans} == {13 // 4}
    assert len({tuple(plan.steps.order.tolist()) for plan in plans}) > 10


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"pool_tokens": 13}, ConfigError, "at least one batch, 14 tokens; got 13"),
        ({"step_cost": 2}, ConfigError, "dearest sample's cost, 3; got 2"),
        ({"costs": [2, 0, 1, 2]}, DataError, "got 0 for sample 1"),
        ({"costs": [2.0, 1.0, 1.0, 2.0]}, DataError, "costs must be one row of integers"),
        ({"batches": batches_of([], [])}, PlanError, "no batches"),
    ],
)
def test_what_cannot_work_is_refused(change, error, says):
    lengths = [5, 9, 3, 7]
    case = {
        "batches": batches_of([[0, 1], [2, 3]], lengths),
        "costs": [2, 3, 1, 2],
        "pool_tokens": 20,
        "step_cost": 4,
    } | change
    with pytest.raises(error, match=says):
        remix(
            case["batches"], lengths, case["costs"],
            pool_tokens=case["pool_tokens"], step_cost=case["step_cost"],
        )  # fmt: skip
