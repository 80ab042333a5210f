"""What every plan promises, for any data, any settings and any number of replicas.

The checker in ``support.check_plan`` recomputes everything from the raw lengths; the data sets and
settings come from ``support.configs``, hostile ones included.
"""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner, build_plan
from support import golden_plans
from support.check_plan import check_plan
from support.configs import STRATEGIES, cases
from support.planning import heavy_tail, plan_of, plan_or_none, value_of

NUMPY = np.random
"""The global generator, on purpose: nothing of ours may read it or move it."""

EVERY_KIND = [
    ("pooled", {}),
    ("pooled", {"target_efficiency": 0.8}),
    ("windowed", {"window_size": 50}),
    ("windowed", {"window_size": 50, "boundaries": (0, 20, 60, 1001)}),
    ("bucketed", {"boundaries": (0, 20, 60, 1001)}),
    ("bucketed", {"boundaries": (0, 20, 60, 1001), "batch_sizing": "fixed"}),
    ("random", {}),
    ("random", {"batch_sizing": "fixed"}),
]


def composition(plan):
    """Batches as sets; single samples have no company that could change."""
    return {frozenset(batch.tolist()) for batch in plan if batch.size > 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=80)
@given(st.data())
def test_no_plan_exceeds_limits_loses_a_sample_or_gives_replicas_unequal_counts(strategy, data):
    """Guarantees 1, 2, 4 and 7: everything is recomputed from the lengths by plain loops."""
    case = data.draw(cases(strategies=(strategy,)))
    plan = plan_or_none(case)
    event("planned" if plan else "impossible")
    if plan is not None:
        check_plan(plan, case.lengths, case.config, case.num_replicas)


@settings(max_examples=60)
@given(cases(), st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]))
def test_the_plan_is_a_value_whatever_the_global_generators_and_the_thread_count(
    case, rng_state, num_threads
):
    """Guarantee 3: built anew, under other generator states, threads and types of the lengths."""
    first = plan_or_none(case)
    assume(first is not None)
    before = random.getstate(), NUMPY.get_state()
    try:
        random.seed(rng_state)
        NUMPY.seed(rng_state)
        other = replace(case, lengths=np.array(case.lengths, np.uint16))
        assert value_of(plan_of(other, num_threads=num_threads)) == value_of(first)
        drawn = random.random(), NUMPY.random()
        random.seed(rng_state)
        NUMPY.seed(rng_state)
        assert drawn == (random.random(), NUMPY.random())
    finally:
        random.setstate(before[0])
        NUMPY.set_state(before[1])


@settings(max_examples=60)
@given(cases())
def test_a_later_epoch_needs_no_earlier_one(case):
    """Resume is an index: asking epochs out of order, or one alone, gives the same plans."""
    assume(plan_or_none(case) is not None)
    planner = Planner(case.lengths, case.config, num_replicas=case.num_replicas)
    for epoch in (case.epoch + 2, case.epoch, case.epoch + 1, case.epoch):
        alone = plan_or_none(replace(case, epoch=epoch))
        if alone is not None:  # few batches may give each replica one in this epoch, not in that
            assert value_of(planner.plan(epoch)) == value_of(alone)


@pytest.mark.parametrize(("strategy", "options"), EVERY_KIND)
def test_threads_share_large_data_without_changing_the_plan(strategy, options):
    """Enough samples for several tasks of every kind: chunks, blocks, streams, windows."""
    lengths = heavy_tail((1 << 20) + (1 << 18) + 2, seed=3)
    config = BatchingConfig(limits=BatchLimits(8192, 64), strategy=strategy, seed=11, **options)
    plans = [
        build_plan(lengths, config, epoch=4, num_replicas=3, num_threads=n).batches
        for n in (1, 2, 3)
    ]
    starts, sizes = plans[0].starts, plans[0].sizes
    for other in plans[1:]:
        assert np.array_equal(other.order, plans[0].order)
        assert np.array_equal(other.starts, starts)
        assert np.array_equal(other.sizes, sizes)
    assert np.array_equal(np.sort(plans[0].order), np.arange(lengths.size))
    longest = np.maximum.reduceat(
        lengths[plans[0].order], np.sort(starts)
    )  # batches tile the order, so that sorted starts are their edges
    assert np.array_equal(longest, plans[0].padded[np.argsort(starts)])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rest", range(4))
def test_streams_of_a_large_pool_may_differ_in_size(seed, rest):
    """One sample a batch fills the tables to the last row, whatever a stream takes at the ends."""
    count = (1 << 19) + rest
    config = BatchingConfig(limits=BatchLimits(10, 1), seed=seed + 8)
    plan = build_plan(np.full(count, 10), config)
    assert plan.num_batches == count
    assert np.array_equal(np.sort(plan.batches.order), np.arange(count))


def test_planning_rules_are_those_that_are_written_down():
    """A change of rules without a new version would let a resumed run continue another plan.

    If this fails on purpose: raise PLAN_VERSION, then run support/golden_plans.py.
    """
    expected = golden_plans.recorded()[str(PLAN_VERSION)]
    assert golden_plans.digests() == expected


@pytest.mark.slow
def test_another_process_makes_the_same_plans():
    """Another hash seed, thread setting and working directory; as on another rank or machine."""
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.golden_plans import digests\n"
        "print(json.dumps(digests()))"
    )
    support = Path(golden_plans.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, str(support)],
        env={**os.environ, "PYTHONHASHSEED": "4242", "NUMBA_NUM_THREADS": "1"},
        cwd=support.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == golden_plans.digests()


@pytest.mark.parametrize(("strategy", "options"), EVERY_KIND)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 10**6))
def test_composition_changes_every_epoch(strategy, options, seed, epoch):
    """Guarantee 5: hardly a batch may hold the same samples again; frozen ones all would.

    One in five is allowed: where a bucket or a pool has few samples, small batches meet again.
    """
    lengths = heavy_tail(1500, seed=1, most=250)
    config = BatchingConfig(limits=BatchLimits(1024, 32), strategy=strategy, seed=seed, **options)
    planner = Planner(lengths, config)
    seen = [composition(planner.plan(epoch + i)) for i in range(3)]
    assert min(map(len, seen)) >= 40
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert len(seen[first] & seen[second]) <= len(seen[first]) / 5


@pytest.mark.parametrize("boundaries", [None, (0, 40, 251)])
@settings(max_examples=8)
@given(seed=st.integers(0, 2**64 - 1))
def test_a_window_as_large_as_its_group_does_not_freeze_the_batches(boundaries, seed):
    """Guarantee 5: sorting all 1,500 samples at once would give every batch again, whole.

    Windows hold a quarter of their group at most; a batch that is one in three of a window then
    keeps its company by chance only.
    """
    lengths = heavy_tail(1500, seed=1, most=250)
    config = BatchingConfig(
        limits=BatchLimits(1024, 32),
        strategy="windowed",
        window_size=10**6,
        boundaries=boundaries,
        seed=seed,
    )
    planner = Planner(lengths, config)
    first, second = (composition(planner.plan(epoch)) for epoch in range(2))
    assert len(first & second) <= len(first) / 5


@settings(max_examples=20)
@given(seed=st.integers(0, 2**64 - 1), num_replicas=st.integers(1, 5))
def test_sorted_batches_are_frozen_and_only_their_order_changes(seed, num_replicas):
    """The baseline: the same sets every epoch and for every seed, in another order."""
    lengths = heavy_tail(400, seed=2)
    planner, other = (
        Planner(
            lengths,
            BatchingConfig(limits=BatchLimits(1024, 32), strategy="sorted", seed=number),
            num_replicas=num_replicas,
        )
        for number in (seed, seed ^ 1)
    )
    first, second = planner.plan(0), planner.plan(1)
    assert composition(first) == composition(second) == composition(other.plan(5))
    assert value_of(first)[3] != value_of(second)[3]
