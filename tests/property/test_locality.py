"""Plans of a few shards at a time: all that every plan promises, and few shards needed."""

import warnings
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.planner import Planner, build_plan
from lengthwise.core.random import Purpose, stream_key
from lengthwise.errors import ConfigError, PlanError
from support.check_plan import check_plan
from support.configs import cases
from support.planning import value_of
from support.sharded import KINDS, LIMITS, by_source, config_of
from support.twins_random import mix, shuffled

LOCAL = ("pooled", "windowed", "bucketed", "random")


@st.composite
def sharded_cases(draw, strategies=LOCAL, sizings=("greedy", "fixed"), least_cuts=0):
    """A case, its samples in shards, and how many of them are planned together."""
    case = draw(cases(strategies, sizings=sizings))
    count = len(case.lengths)
    places = st.integers(1, max(1, count - 1))
    cuts = draw(st.sets(places, min_size=least_cuts, max_size=8)) if count > 1 else set()
    sizes = np.diff([0, *sorted(cuts), count]).tolist()
    return case.changed(shards_per_group=draw(st.integers(1, len(sizes) + 1))), sizes


def plan_or_none(case, sizes):
    """The plan; None where there are too few samples or batches for the replicas."""
    try:
        return build_plan(
            case.lengths,
            case.config,
            epoch=case.epoch,
            num_replicas=case.num_replicas,
            shard_sizes=sizes,
        )
    except PlanError:
        event("impossible")
        return None


@settings(max_examples=300)
@given(sharded_cases())
def test_plans_by_shards_promise_what_all_plans_do(pair):
    """Limits, every sample once, equal counts, exact totals: recomputed by plain loops."""
    case, sizes = pair
    plan = plan_or_none(case, sizes)
    if plan is not None:
        check_plan(plan, case.lengths, case.config, case.num_replicas)


@settings(max_examples=160)
@given(sharded_cases(sizings=("greedy",)))
def test_a_step_has_no_sample_of_an_earlier_group_than_the_step_before(pair):
    """Group after group; at most one step has what an earlier group left over.

    Where a plan lets every batch have samples of one group, groups never come back: the earliest
    of a step is not before the latest of the one before.
    """
    case, sizes = pair
    plan = plan_or_none(case, sizes)
    if plan is None:
        return
    shard_of = np.repeat(np.arange(len(sizes)), sizes)
    most = case.config.limits.longest_allowed
    cut = case.config.oversize == "truncate"
    counted = [min(length, most) if cut else length for length in case.lengths]
    number_of = groups_by_shard(plan, np.split(np.array(counted), np.cumsum(sizes)[:-1]))
    per_step = case.num_replicas * case.config.accumulation_steps
    batches = [{number_of[shard_of[i]] for i in batch} for batch in plan]
    assert all(len(groups) == 1 for groups in batches)
    steps = [batches[i : i + per_step] for i in range(0, len(batches), per_step)]
    for before, after in pairwise(steps):
        assert max(map(max, before)) <= min(map(min, after))


def groups_by_shard(plan, shards):
    """Which group each shard is in."""
    order = shard_order(plan, [sum(map(int, shard)) / len(shard) for shard in shards])
    return {shard: place // plan.config.shards_per_group for place, shard in enumerate(order)}


def shard_order(plan, means):
    """The documented order, by plain lists: a group has one shard of each part of the ranking.

    The last group, of what is left, comes first: one random shard of each of as many equal parts.
    """
    key = stream_key(plan.config.seed, plan.epoch, Purpose.SHARDS)
    each, count = plan.config.shards_per_group, len(means)
    ranked = sorted(range(count), key=lambda shard: (means[shard], shard))
    whole = (count - 1) // each
    left = count - whole * each
    cuts = [count * part // left for part in range(left + 1)]
    last = [
        ranked[first + mix(key, part) * (stop - first) // 2**64]
        for part, (first, stop) in enumerate(pairwise(cuts))
    ]
    rest = [shard for shard in ranked if shard not in last]
    strata = [
        shuffled(rest[part * whole : (part + 1) * whole], mix(mix(key, left), part))
        for part in range(each)
    ]
    return [stratum[number] for number in range(whole) for stratum in strata] + last


def open_shards(plan, shard_of, without=()):
    """Shards that are needed at each step: from the first one that reads them to the last."""
    first, last = {}, {}
    for number, batch in enumerate(plan):
        step = number // plan.num_replicas
        if number in without:
            continue
        for shard in set(shard_of[batch].tolist()):
            first.setdefault(shard, step)
            last[shard] = step
    changes = Counter(first.values())
    changes.subtract(step + 1 for step in last.values())
    return np.cumsum([changes[step] for step in range(plan.num_steps)])


def waiting_batches(plan, shard_of, shards):
    """Batches with samples of groups that are no neighbours: fixed sizes wait until they are full.

    A bucket has at most one of them a group.
    """
    number_of = groups_by_shard(plan, shards)
    groups = [{number_of[shard] for shard in shard_of[batch].tolist()} for batch in plan]
    return {number for number, found in enumerate(groups) if max(found) - min(found) > 1}


@pytest.mark.parametrize("kind", KINDS)
def test_few_shards_are_needed_at_a_time(kind):
    """At most those of two groups, where a group has batches for several steps; else all are."""
    shards = by_source()
    shard_of = np.repeat(np.arange(24), 400)
    config = config_of(kind)
    for epoch in range(3):
        plan = build_plan(shards, config, epoch=epoch, num_replicas=4)
        waiting = waiting_batches(plan, shard_of, shards)
        assert len(waiting) <= (3 * 8 if config.batch_sizing == "fixed" else 0)
        assert open_shards(plan, shard_of, waiting).max() <= 6
    whole = build_plan(shards, replace(config, shards_per_group=None), num_replicas=4)
    assert open_shards(whole, shard_of).max() == 24


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_others_in_every_epoch_and_so_are_batches(kind):
    """Shards are shuffled anew, and so are samples: few pairs of a batch meet again."""
    shards = by_source()
    planner = Planner(shards, config_of(kind))
    first, second = (
        {(a, b) for batch in planner.plan(epoch) for a in batch.tolist() for b in batch.tolist()}
        for epoch in (0, 1)
    )
    pairs = {pair for pair in first if pair[0] < pair[1]}
    assert len(pairs & second) < 0.15 * len(pairs)


@settings(max_examples=50)
@given(
    sharded_cases(least_cuts=1),
    st.integers(1, 3),
    st.sampled_from([np.uint16, np.uint32, np.int32]),
)
def test_shards_may_lie_in_one_array_or_in_several(pair, num_threads, dtype):
    """And be of any type; threads change nothing. The lists that shards make are cut from one.

    Where no plan exists for the one, there is none for the others.
    """
    case, sizes = pair
    plan = plan_or_none(case, sizes)
    cut = np.split(np.array(case.lengths, dtype), np.cumsum(sizes)[:-1])
    how = {"epoch": case.epoch, "num_replicas": case.num_replicas, "num_threads": num_threads}
    if plan is None:
        with pytest.raises(PlanError):
            build_plan(cut, case.config, **how)
    else:
        assert value_of(build_plan(cut, case.config, **how)) == value_of(plan)


@pytest.mark.parametrize("one", [list, tuple, iter])
def test_a_single_shard_in_a_row_of_shards_is_known_as_one(one):
    """As data are that fit one file. The plan is that of the same shard, named by its size."""
    lengths = np.arange(1, 60)
    config = config_of("pooled")
    plan = build_plan(one([lengths]), config)
    assert value_of(plan) == value_of(build_plan(lengths, config, shard_sizes=[lengths.size]))


def test_shards_are_part_of_the_fingerprint_where_they_are_looked_at():
    """Other shards, another plan; without shards_per_group they are nothing but storage."""
    shards = by_source()
    config = config_of("pooled")
    joined = np.concatenate(shards)
    assert build_plan(shards, config).fingerprint != (
        build_plan(joined, config, shard_sizes=[4_800, 4_800]).fingerprint
    )
    plain = replace(config, shards_per_group=None)
    assert build_plan(shards, plain).fingerprint == build_plan(joined, plain).fingerprint


def test_epochs_by_shards_can_be_evened():
    """As for any greedy plan; fixed sizes have the same number of batches anyway."""
    for kind in ("pooled", "fixed"):
        planner = Planner(by_source(), config_of(kind), num_replicas=3).evened(3)
        assert len({planner.plan(epoch).num_batches for epoch in range(3)}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"needs to know the shards: give lengths as a list of arrays.* or shard_sizes="),
        ({"shard_sizes": [3, 0]}, "must each be at least 1 and add up to the 3 samples; the least"),
        ({"shard_sizes": [1, 1]}, r"add up to the 3 samples; the least is 1, the sum 2"),
        ({"shard_sizes": [1.0, 2.0]}, "one row of whole numbers"),
    ],
)
def test_what_is_wrong_with_shards_is_said(arguments, message):
    """The rule, the value, and the way out."""
    with pytest.raises(ConfigError, match=message):
        build_plan([5, 6, 7], config_of("pooled"), **arguments)


def test_settings_that_cannot_go_together_are_refused():
    """A number of shards is at least 1; sorted batches are of all samples."""
    with pytest.raises(ConfigError, match="shards_per_group must be from 1"):
        config_of("pooled", shards_per_group=0)
    with pytest.raises(ConfigError, match="which strategy='sorted' cannot"):
        BatchingConfig(limits=LIMITS, strategy="sorted", shards_per_group=2)


def test_a_group_of_samples_that_are_all_dropped_has_no_batches():
    """Two shards of three hold nothing but samples above the budget."""
    shards = [np.full(5, 3000), np.full(7, 10), np.full(4, 2500)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("pooled", "random"):
            config = BatchingConfig(
                limits=LIMITS, strategy=kind, shards_per_group=1, oversize="drop"
            )
            plan = build_plan(shards, config)
            assert sorted(i for batch in plan for i in batch.tolist()) == list(range(5, 12))


@settings(max_examples=120)
@given(sharded_cases(("bucketed", "random"), ("fixed",)))
def test_windows_of_fixed_sizes_begin_with_optimiser_steps(pair):
    """So that a step is stratified over one window. Together they have all batches, none twice."""
    case, sizes = pair
    plan = plan_or_none(case, sizes)
    if plan is None:
        return
    course = plan.source.course
    per_step = case.num_replicas * case.config.accumulation_steps
    assert all(bound % per_step == 0 for bound in course.bounds[:-1].tolist())
    assert course.bounds[-1] == plan.num_batches
    numbers = np.diff(course.begins, axis=1)
    assert (numbers >= 0).all()
    assert np.diff(course.bounds).tolist() == numbers.sum(axis=1).tolist()
    ends = np.concatenate((course.cuts[1:], (course.cuts[-1] + numbers[-1])[None]))
    assert (course.cuts + numbers == ends).all()
