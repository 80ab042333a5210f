"""Epochs of one length: ``num_batches``, and the planner that finds it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import MOST_PACKED, Planner, build_plan
from lengthwise.errors import ConfigError, PlanError
from support.check_plan import check_plan

LIMITS = BatchLimits(max_tokens=600, max_batch_size=16)
KINDS = {
    "pooled": {},
    "random": {"strategy": "random"},
    "windowed": {"strategy": "windowed", "window_size": 20},
    "bucketed": {"num_buckets": 3, "pad_to_boundary": True},
    "sorted": {"strategy": "sorted"},
    "drop_last": {"strategy": "random", "drop_last": True},
}


def lengths_of(count, seed=0):
    return np.minimum(10 * np.random.default_rng(seed).pareto(1.0, count) + 1, 300).astype(np.int64)


def planner(kind="random", count=300, num_replicas=2, **fields):
    config = BatchingConfig(limits=LIMITS, **KINDS[kind], **fields)
    return Planner(lengths_of(count), config, num_replicas=num_replicas, num_threads=1)


def test_without_it_the_number_of_batches_varies():
    """Otherwise the tests below would hold for plans as they come."""
    plain = planner()
    assert len({plain.plan(epoch).num_batches for epoch in range(5)}) > 1


@pytest.mark.parametrize("num_replicas", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_evened_epochs_have_the_number_of_the_longest_and_keep_every_promise(kind, num_replicas):
    """The longest epoch is packed as it was; the rest only gets what it lacks, by splitting."""
    plain = planner(kind, num_replicas=num_replicas)
    even = plain.evened(4)
    whole = Planner(plain.lengths, plain.config, num_threads=1)
    most = max(whole.plan(epoch).num_batches for epoch in range(4))
    if kind != "drop_last":  # one replica has no surplus, fixed batches no short one
        assert even.config.num_batches == most
    for epoch in range(4):
        plan = even.plan(epoch)
        assert plan.num_batches == -(-most // num_replicas) * num_replicas
        assert plan.stats.num_left_out == 0
        if kind != "drop_last":
            check_plan(plan, plain.lengths.tolist(), even.config, num_replicas)


@given(st.integers(20, 200), st.integers(1, 4), st.integers(0, 40))
def test_every_sample_is_in_exactly_one_of_the_wanted_number_of_batches(count, num_replicas, more):
    """Any number from what packing gives up to one batch a sample can be reached by splitting."""
    lengths = lengths_of(count, seed=count)
    config = BatchingConfig(limits=LIMITS, strategy="random")
    least = build_plan(lengths, config).num_batches
    wanted = min(least + more, count - count % num_replicas)
    if -(-wanted // num_replicas) * num_replicas < least:
        return
    config = BatchingConfig(limits=LIMITS, strategy="random", num_batches=wanted)
    plan = build_plan(lengths, config, num_replicas=num_replicas)
    assert plan.num_batches == -(-wanted // num_replicas) * num_replicas
    assert sorted(i for batch in plan for i in batch.tolist()) == list(range(count))
    assert plan.stats.num_split_batches == plan.num_batches - least


def test_the_same_number_holds_on_any_number_of_replicas():
    """It counts batches of all replicas, so a run that changes their number keeps its config."""
    assert len({planner(num_replicas=r).evened(4).config for r in (1, 2, 3)}) == 1


def test_an_epoch_that_needs_more_is_refused_with_both_numbers():
    """Merging batches could break the budget, so too small a number cannot be met."""
    counts = [planner(num_replicas=1).plan(epoch).num_batches for epoch in range(6)]
    small = planner(num_replicas=1, num_batches=min(counts))
    where = counts.index(max(counts))
    with pytest.raises(PlanError, match=rf"epoch {where} packs into {max(counts)} .*{min(counts)}"):
        small.plan(where)
    with pytest.raises(PlanError, match="num_batches"):
        small.evened(6)
    roomy = planner(num_replicas=1, num_batches=max(counts))
    assert roomy.evened(6) is roomy


def test_of_many_epochs_some_are_packed_and_a_margin_is_added(monkeypatch):
    """A run may be set to a thousand epochs; packing them all would take longer than training."""
    plain, packed = planner(count=1000), []
    pack = Planner._pack
    monkeypatch.setattr(Planner, "_pack", lambda self, e: packed.append(e) or pack(self, e))
    most = plain.evened(MOST_PACKED).config.num_batches
    assert packed == list(range(MOST_PACKED))
    number = plain.evened(100_000).config.num_batches
    assert len(packed) == 2 * MOST_PACKED
    assert most < number < 1.1 * most  # a margin, and a small one
    even = plain.evened(1000)
    assert {even.plan(epoch).num_batches for epoch in range(500, 700)} == {number + number % 2}


def test_fixed_sizing_needs_none():
    """Its batches are the same number in every epoch already."""
    fixed = planner("bucketed", batch_sizing="fixed")
    assert fixed.evened(3) is fixed
    with pytest.raises(ConfigError, match="same number of batches anyway"):
        planner("bucketed", batch_sizing="fixed", num_batches=9)
