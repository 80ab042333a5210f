"""Guarantees 6 and 7: a name changes with all that decides a plan; totals are exact."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner, build_plan
from lengthwise.errors import ConfigError, OversizeError, PlanError
from support.configs import cases
from support.planning import heavy_tail, plan_or_none, value_of


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
        "shards_per_group": 2,
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
    shards = [80, 70, 50]
    names = {build_plan(lengths, config, shard_sizes=shards).fingerprint for config in configs}
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
