"""The plan as an object: access, bounds, ranks, totals."""

import pickle
import tracemalloc

import numpy as np
import pytest

from lengthwise.core.batches import Batches
from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.plan import EpochPlan
from lengthwise.core.planner import Planner, build_plan
from lengthwise.errors import ConfigError, PlanError

CONFIG = BatchingConfig(limits=BatchLimits(100, 8))
FIXED = BatchingConfig(limits=BatchLimits(100, 8), boundaries=(0, 8, 50), batch_sizing="fixed")
LENGTHS = [1 + 7 * i % 23 for i in range(60)]


@pytest.fixture(params=[CONFIG, FIXED], ids=["stored", "computed"])
def plan(request):
    return build_plan(LENGTHS, request.param, epoch=1, num_replicas=2)


def test_batches_are_int64_indices(plan):
    """Whatever they are stored as: indexing with uint32 and adding to it would surprise."""
    batch = plan.batch(0)
    assert batch.dtype == np.int64
    assert batch.ndim == 1
    assert [b.tolist() for b in plan] == [plan.batch(i).tolist() for i in range(len(plan))]


@pytest.mark.parametrize("beyond", [-1, 0])
def test_a_batch_that_does_not_exist_is_an_index_error(plan, beyond):
    """Negative numbers too: in a sampler they come from a wrong resume, not from the end."""
    index = len(plan) if beyond == 0 else -1
    with pytest.raises(IndexError, match=f"batch {index} of a plan of {len(plan)} batches"):
        plan.batch(index)


def test_a_rank_runs_every_second_batch(plan):
    """Step s of replica r is batch s * num_replicas + r; sequences know their end."""
    for rank in (0, 1):
        own = plan.for_rank(rank)
        assert [b.tolist() for b in own] == [
            plan.batch(i).tolist() for i in range(rank, len(plan), 2)
        ]
        assert own[-1].tolist() == own[len(own) - 1].tolist()
        for step in (len(own), -len(own) - 1):
            with pytest.raises(IndexError, match=f"step {step} of {len(own)}"):
                own[step]


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (2, r"rank must be below num_replicas \(2\), got 2"),
        (-1, r"rank must be from 0"),
        (0.0, r"rank must be an integer"),
        (None, r"rank must be an integer, got None"),
    ],
)
def test_a_rank_that_does_not_exist_is_refused(plan, rank, message):
    """A wrong rank would train on another replica's data, or hang."""
    with pytest.raises(ConfigError, match=message):
        plan.for_rank(rank)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_replicas": 0}, "num_replicas must be from 1"),
        ({"num_replicas": 2.0}, "num_replicas must be an integer"),
        ({"num_threads": 0}, "num_threads must be from 1"),
        ({"epoch": -1}, "epoch must be from 0"),
        ({"epoch": 1.0}, "epoch must be an integer"),
    ],
)
def test_counts_that_are_none_are_refused(arguments, message):
    """As everywhere: rule and value."""
    with pytest.raises(ConfigError, match=message):
        build_plan(LENGTHS, CONFIG, **arguments)


@pytest.mark.parametrize("longest", [2**32, 2**53])
def test_lengths_of_32_bits_and_more_are_refused(longest):
    """They would not fit the word that a sample travels in; silent wrapping must not happen."""
    config = BatchingConfig(limits=BatchLimits(2**40))
    with pytest.raises(PlanError, match=r"fewer than 2\*\*32 tokens; .* the longest of"):
        build_plan([5, longest], config)
    assert build_plan([5, 2**32 - 1], config).stats.real_tokens == 2**32 + 4


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [((5, 100), "first boundary is 5, but .* 1 token"), ((0, 10), "last boundary is 10")],
)
def test_boundaries_must_cover_the_data(boundaries, message):
    """A sample below the first or above the last bucket would have no batch."""
    config = BatchingConfig(limits=BatchLimits(100), boundaries=boundaries)
    with pytest.raises(ConfigError, match=message):
        build_plan(LENGTHS, config)


@pytest.mark.parametrize("policy", ["drop", "single"])
@pytest.mark.parametrize("buckets", [{"num_buckets": 1}, {"boundaries": (0, 2)}])
def test_boundaries_need_not_cover_samples_that_a_policy_takes_out(policy, buckets):
    """Budget 2, lengths 10, 18 and 1: only the 1 needs a bucket, which may end at 2."""
    config = BatchingConfig(limits=BatchLimits(2), oversize=policy, **buckets)
    plan = build_plan([10, 18, 1], config)
    assert plan.num_batches == (1 if policy == "drop" else 3)
    assert plan.config.boundaries[-1] == 2


def test_totals_beyond_int64_are_exact():
    """2**23 + 5 batches of 2**40 padded tokens are more than 2**63; the arrays are views of one."""
    count = 2**23 + 5
    one = np.zeros(1, np.int64)
    batches = Batches(
        np.zeros(1, np.uint32),
        np.broadcast_to(one, count),
        np.broadcast_to(one + 1, count),
        np.broadcast_to(one + 2**40, count),
        np.broadcast_to(one + 2**40 - 1, count),
    )
    config = BatchingConfig(limits=BatchLimits(2**40))
    stats = EpochPlan(config, 0, 1, "", batches, {}).stats
    assert stats.padded_tokens == count * 2**40 > 2**63
    assert stats.real_tokens == count * (2**40 - 1)
    assert stats.efficiency == pytest.approx(1)


def test_stats_as_plain_numbers_hold_every_total_and_share():
    """What the command line prints as JSON: Python numbers under the names of the fields."""
    config = BatchingConfig(limits=BatchLimits(20), oversize="drop")
    stats = build_plan([10, 10, 5, 30], config).stats
    values = stats.to_dict()
    assert values["num_samples"] == 3
    assert values["num_left_out"] == values["num_dropped_oversize"] == 1
    assert values["real_tokens"] == 25
    assert values["efficiency"] == 25 / values["padded_tokens"]
    assert values["utilization"] == 25 / (20 * values["num_batches"])
    assert all(type(value) in (int, float) for value in values.values())
    assert stats.left_out() == {"oversize samples dropped": 1}


def test_a_planner_shares_its_set_up_with_other_replica_counts():
    """Its plans are those of a planner built anew; the first one stays what it is."""
    for config in (CONFIG, FIXED):
        planner = Planner(LENGTHS, config, num_replicas=2)
        other = planner.with_replicas(3)
        for mine, count in ((planner, 2), (other, 3)):
            fresh = build_plan(LENGTHS, config, epoch=4, num_replicas=count)
            assert mine.fingerprint == fresh.fingerprint
            assert [b.tolist() for b in mine.plan(4)] == [b.tolist() for b in fresh]


def test_plans_travel_to_worker_processes(plan):
    """Loaders pickle them; the copy yields the same batches."""
    copy = pickle.loads(pickle.dumps(plan))
    assert [b.tolist() for b in copy] == [b.tolist() for b in plan]
    assert copy.stats == plan.stats


def test_lengths_are_not_changed_by_planning():
    """The caller's array may be shared by other processes, or read-only."""
    lengths = np.array([*LENGTHS, 300], np.int64)
    before = lengths.copy()
    lengths.setflags(write=False)
    for policy in ("drop", "truncate", "single"):
        build_plan(lengths, BatchingConfig(limits=BatchLimits(100), oversize=policy))
    assert np.array_equal(lengths, before)


def test_planning_takes_little_memory():
    """Four bytes a sample stay, its index; a plan has them once more, and again while it is made.

    What batches take comes on top: their five numbers, and copies of them, each 8 bytes. Words
    that carry the length along, 8 bytes a sample, would go beyond the bound. Fixed sizes keep the
    half of an index.
    """
    lengths = np.arange(200_000) % 49 + 1
    for config, each in ((BatchingConfig(limits=BatchLimits(2500, 50)), 4), (FIXED, 2)):
        planner = Planner(lengths, config)
        assert planner.prepared.words.nbytes == each * lengths.size
    planner = Planner(lengths, BatchingConfig(limits=BatchLimits(2500, 50)))
    planner.plan(0)  # compiled or loaded now
    tracemalloc.start()
    plan = planner.plan(1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * lengths.size + 200 * len(plan) + 100_000
