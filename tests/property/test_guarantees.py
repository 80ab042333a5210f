"""What every plan promises, for any data, any settings and any number of replicas.

The checker in ``support.check_plan`` recomputes everything from the raw lengths; the data sets and
settings come from ``support.configs``, hostile ones included.
"""

import json
import os
import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner, build_plan
from lengthwise.errors import ConfigError, OversizeError, PlanError
from support import golden_plans
from support.check_plan import check_plan
from support.configs import STRATEGIES, cases

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


def plan_of(case, **options):
    return build_plan(
        case.lengths, case.config, epoch=case.epoch, num_replicas=case.num_replicas, **options
    )


def plan_or_none(case):
    """The plan; None where there is none, which then must be impossible indeed."""
    try:
        return plan_of(case)
    except PlanError:
        assert is_impossible(case)
        return None


def is_impossible(case):
    """Whether no number that the replicas divide lies between the fewest batches and the most.

    Batches can be split down to single samples but never merged; ``drop_last`` drops them instead,
    and ``num_batches`` leaves one number only.
    """
    free = case if case.config.num_batches is None else case.changed(num_batches=None)
    try:
        alone = build_plan(free.lengths, free.config, epoch=case.epoch)
    except PlanError:
        return case.config.drop_last  # fixed sizing, and not one full batch
    fewest, samples, replicas = alone.num_batches, alone.stats.num_samples, case.num_replicas
    if case.config.num_batches is not None:
        return not fewest <= -(-case.config.num_batches // replicas) * replicas <= samples
    if case.config.drop_last:
        return fewest < replicas
    return samples // replicas * replicas < fewest


def value_of(plan):
    """All that a plan says, as plain data."""
    return (
        plan.fingerprint,
        plan.num_replicas,
        plan.stats,
        [batch.tolist() for batch in plan],
        plan.batches.padded.tolist(),
        plan.batches.tokens.tolist(),
    )


def composition(plan):
    """Batches as sets; single samples have no company that could change."""
    return {frozenset(batch.tolist()) for batch in plan if batch.size > 1}


def heavy_tail(count, seed=0, most=1000):
    values = 10 * np.random.default_rng(seed).pareto(1.0, count) + 1
    return np.minimum(values, most).astype(np.int64)


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


def name_of(case):
    return Planner(case.lengths, case.config, num_replicas=case.num_replicas).fingerprint


@settings(max_examples=80)
@given(cases(), st.data())
def test_the_fingerprint_names_lengths_their_order_settings_and_replicas(case, data):
    """Guarantee 6: any change gives another name; another epoch gives the same one."""
    plan = plan_or_none(case)
    assume(plan is not None)
    assert plan.fingerprint == name_of(case)
    place = data.draw(st.integers(0, len(case.lengths) - 1))
    longer = [*case.lengths[:place], case.lengths[place] + 1, *case.lengths[place + 1 :]]
    others = [
        replace(case, lengths=longer),
        replace(case, lengths=[*case.lengths, case.lengths[0]]),
        replace(case, num_replicas=case.num_replicas + 1),
        case.changed(seed=case.config.seed ^ 1),
        case.changed(drop_last=not case.config.drop_last),
        case.changed(accumulation_steps=case.config.accumulation_steps + 1),
    ]
    if case.lengths != case.lengths[::-1]:
        others.append(replace(case, lengths=case.lengths[::-1]))
    names = [plan.fingerprint]
    for other in others:
        try:
            names.append(name_of(other))
        except (PlanError, OversizeError, ConfigError):
            event("a change that cannot be planned: too long, outside the buckets, too few batches")
    assert len(set(names)) == len(names)


def test_every_field_of_a_config_is_part_of_the_fingerprint():
    """A field that the name leaves out could be changed between runs without being noticed."""
    base = BatchingConfig(limits=BatchLimits(512, 8), strategy="windowed", boundaries=(0, 50, 1001))
    lengths = heavy_tail(200, seed=4, most=400)
    changes = {
        "limits": BatchLimits(512, 9),
        "boundaries": (0, 51, 1001),
        "window_size": 7,
        "order": "shuffled",
        "accumulation_steps": 2,
        "balance": "bucket",
        "pad_to_boundary": True,
        "oversize": "drop",
        "drop_last": True,
        "num_batches": 150,
        "seed": 1,
    }
    configs = [base, *(replace(base, **{name: value}) for name, value in changes.items())]
    configs += [
        replace(base, strategy="bucketed", window_size=None),
        replace(base, strategy="bucketed", window_size=None, num_buckets=3, boundaries=None),
        replace(
            base, strategy="bucketed", window_size=None, batch_sizing="fixed", order="stratified"
        ),
        BatchingConfig(limits=BatchLimits(512, 8)),
        BatchingConfig(limits=BatchLimits(512, 8), target_efficiency=0.9),
        *(
            replace(base, limits=replace(base.limits, **change))
            for change in (
                {"max_tokens": 513},
                {"max_batch_size": None},
                {"pad_to_multiple_of": 2},
                {"batch_size_multiple_of": 2},
            )
        ),
    ]
    touched = {name for config in configs for name in _different(base, config)}
    assert touched == {field.name for field in fields(BatchingConfig)}
    names = {build_plan(lengths, config).fingerprint for config in configs}
    assert len(names) == len(configs)


def _different(base, config):
    return [
        field.name
        for field in fields(BatchingConfig)
        if getattr(base, field.name) != getattr(config, field.name)
    ]


def test_equal_data_and_settings_have_one_name_however_they_are_written():
    """Types of the lengths, and whether boundaries were found or given, do not matter."""
    lengths = heavy_tail(500, seed=5)
    config = BatchingConfig(limits=BatchLimits(4096, 16), num_buckets=4)
    plan = build_plan(lengths, config, num_replicas=2)
    given_edges = BatchingConfig(limits=BatchLimits(4096, 16), boundaries=plan.config.boundaries)
    for other in (lengths.tolist(), lengths.astype(np.uint16), lengths.astype(np.float64)):
        assert build_plan(other, config, num_replicas=2).fingerprint == plan.fingerprint
    assert value_of(build_plan(lengths, given_edges, num_replicas=2)) == value_of(plan)


def test_a_cut_data_set_is_told_from_one_that_was_short_already():
    """Truncation makes both count as 100 tokens; the data, and what was left out, still differ."""
    config = BatchingConfig(limits=BatchLimits(100), oversize="truncate")
    names = {build_plan([50, last], config).fingerprint for last in (100, 200, 300)}
    assert len(names) == 3


@pytest.mark.parametrize("strategy", ["pooled", "windowed", "sorted", "random"])
def test_token_totals_beyond_2_to_the_53_are_exact(strategy):
    """Guarantee 7: floats would lose the last digits of both sums; Python integers do not."""
    count, longest = 2_300_000, 2**32 - 1
    lengths = longest - np.arange(count) % 8
    lengths[0] -= 1  # makes the sum odd; no float beyond 2**53 is
    limits = BatchLimits(max_tokens=2**36 + 5, max_batch_size=7)
    stats = build_plan(lengths, BatchingConfig(limits=limits, strategy=strategy)).stats
    expected = sum(longest - i % 8 for i in range(count)) - 1
    assert 2**53 < expected != int(float(expected))
    assert stats.real_tokens == expected
    assert 0 <= stats.padded_tokens - expected <= 7 * count


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_padded_totals_are_exact_where_padding_is_vast(shift):
    """Few samples, each padded to 2**38: the total passes 2**53, and the real one does not."""
    count = 300_000
    limits = BatchLimits(max_tokens=2**40, pad_to_multiple_of=2**38)
    lengths = np.full(count, 2**31 + shift)
    stats = build_plan(lengths, BatchingConfig(limits=limits, strategy="random")).stats
    assert stats.real_tokens == count * (2**31 + shift)
    assert stats.padded_tokens == count * 2**38
