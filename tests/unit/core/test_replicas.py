"""Equal numbers of batches for the replicas: what is split, what is dropped, what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.core.replicas import second_half
from lengthwise.errors import PlanError


def equal_batches(num_samples, size, **fields):
    """A data set of equal lengths, so that batches are known: all of ``size``, but the last."""
    limits = BatchLimits(10 * size, batch_size_multiple_of=fields.pop("multiple", 1))
    config = BatchingConfig(limits=limits, strategy="random", **fields)
    return [10] * num_samples, config


def sizes_of(plan):
    return sorted((len(batch) for batch in plan), reverse=True)


@given(st.integers(2, 10_000), st.sampled_from([1, 2, 8, 64]))
def test_halves_are_both_multiples_where_the_whole_is_one(size, multiple):
    """Nothing gets lost, neither half is empty, and no half breaks the rule of multiples."""
    second = int(second_half(np.int64(size), multiple))
    first = size - second
    assert 1 <= second <= first
    if size % multiple == 0 or size < multiple:
        assert all(half % multiple == 0 or half < multiple for half in (first, second))
    if multiple == 1:
        assert first - second <= 1


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
@pytest.mark.parametrize(
    ("num_samples", "num_replicas", "expected"),
    [
        (32, 4, [8, 8, 8, 8]),
        (24, 4, [8, 8, 4, 4]),
        (16, 4, [4, 4, 4, 4]),
        (8, 4, [2, 2, 2, 2]),
        (4, 4, [1, 1, 1, 1]),
        (33, 3, [8, 8, 8, 4, 4, 1]),
    ],
)
def test_the_largest_batches_are_halved_until_the_replicas_divide_them(
    num_samples, num_replicas, expected, sizing
):
    """Batches of eight; what is split is the least that makes the number fit."""
    lengths, config = equal_batches(num_samples, 8, batch_sizing=sizing)
    plan = build_plan(lengths, config, num_replicas=num_replicas)
    assert sizes_of(plan) == expected
    alone = build_plan(lengths, config).num_batches
    assert plan.stats.num_split_batches == plan.num_batches - alone
    assert plan.stats.num_left_out == 0


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
def test_a_split_keeps_to_the_multiple(sizing):
    """24 = 16 + 8 and not 12 + 12, where batches are to hold multiples of eight."""
    lengths, config = equal_batches(24, 24, multiple=8, batch_sizing=sizing)
    assert sizes_of(build_plan(lengths, config, num_replicas=2)) == [16, 8]


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
def test_a_rest_keeps_to_the_multiple(sizing):
    """24 + 21 samples: the rest is 16 and 5; fixed sizing once made one batch of 21."""
    lengths, config = equal_batches(45, 24, multiple=8, batch_sizing=sizing)
    assert sizes_of(build_plan(lengths, config)) == [24, 16, 5]


def test_dropping_takes_the_surplus_at_random_and_counts_it():
    """Seven batches for three replicas: one goes, another one each epoch, and it is counted."""
    lengths, config = equal_batches(56, 8, drop_last=True)
    gone = set()
    for epoch in range(5):
        plan = build_plan(lengths, config, epoch=epoch, num_replicas=3)
        assert plan.num_batches == 6
        assert plan.stats.num_dropped_batches == 1
        assert plan.stats.num_dropped_samples == plan.stats.num_left_out == 8
        kept = {int(index) for batch in plan for index in batch}
        gone.add(frozenset(set(range(56)) - kept))
    assert len(gone) == 5


def test_fixed_sizing_drops_short_batches_and_the_surplus():
    """8 * 5 + 3 samples for two replicas: the three, and one full batch, are left out."""
    lengths, config = equal_batches(43, 8, drop_last=True, batch_sizing="fixed")
    stats = build_plan(lengths, config, num_replicas=2).stats
    assert (stats.num_batches, stats.num_dropped_batches, stats.num_dropped_samples) == (4, 2, 11)
    assert stats.left_out() == {
        "batches dropped for equal replicas": 2,
        "samples in dropped batches": 11,
    }


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
@pytest.mark.parametrize(
    ("num_samples", "num_replicas", "drop_last", "message"),
    [
        (5, 6, False, r"5 samples cannot give each of .* 6 are needed.*fewer replicas"),
        (5, 2**31, False, r"5 samples cannot give each of .*fewer replicas"),
        (24, 4, True, r"leaves nothing: 3 (full )?batches do not give each of 4 replicas one"),
    ],
)
def test_what_cannot_be_dealt_is_refused_with_numbers(
    num_samples, num_replicas, drop_last, message, sizing
):
    """Before training, and without a loop over two thousand million replicas."""
    lengths, config = equal_batches(num_samples, 8, drop_last=drop_last, batch_sizing=sizing)
    with pytest.raises(PlanError, match=message):
        build_plan(lengths, config, num_replicas=num_replicas)
