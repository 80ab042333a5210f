"""The learning rate's factor at the edges, by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.errors import ConfigError


def factors(config, steps, total=100):
    return [config.factor(step, total) for step in steps]


@pytest.mark.parametrize("kind", ["cosine", "wsd", "constant"])
def test_warm_up_rises_in_whole_optimiser_steps_and_wastes_none(kind):
    """4 % of 100 steps: a quarter, a half, three quarters, all; then the peak."""
    assert factors(ScheduleConfig(kind), range(5)) == [0.25, 0.5, 0.75, 1, 1]
    assert factors(ScheduleConfig(kind, warmup_steps=2), range(3)) == [0.5, 1, 1]
    assert factors(ScheduleConfig(kind, warmup_steps=0), [0]) == [1]


def test_cosine_is_half_way_at_half_time_and_at_its_floor_after_the_last_step():
    """Between step 20 and the end, at 100: at 60 half the way, at 40 cos(45 degrees)."""
    config = ScheduleConfig("cosine", warmup_ratio=0.2)
    assert factors(config, [20, 60, 100, 1000]) == pytest.approx([1, 0.5, 0, 0])
    assert config.factor(40, 100) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert config.factor(99, 100) > 0
    floor = ScheduleConfig("cosine", warmup_ratio=0.2, final_ratio=0.1)
    assert factors(floor, [20, 60, 100, 1000]) == pytest.approx([1, 0.55, 0.1, 0.1])


def test_wsd_stays_up_and_falls_in_a_line():
    """The last fifth of 100 steps, to a tenth: full at 80, 0.55 half way, 0.1 at the end."""
    config = ScheduleConfig("wsd", final_ratio=0.1)
    assert factors(config, [4, 50, 79, 80, 90, 100, 101]) == pytest.approx(
        [1, 1, 1, 1, 0.55, 0.1, 0.1]
    )
    at_once = ScheduleConfig("wsd", decay_ratio=0.0)
    assert factors(at_once, [99, 100]) == [1, 0]


def test_constant_stays():
    assert factors(ScheduleConfig("constant"), [4, 50, 99, 1000]) == [1, 1, 1, 1]


@given(
    st.sampled_from(["cosine", "wsd", "constant"]),
    st.integers(1, 300),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_any_schedule_rises_once_then_never_and_stays_between_its_bounds(
    kind, total, warmup, final, decay
):
    config = ScheduleConfig(kind, warmup_ratio=warmup, final_ratio=final, decay_ratio=decay)
    values = factors(config, range(total + 2), total)
    top = config.num_warmup_steps(total)
    assert all(a < b for a, b in pairwise(values[:top]))
    assert all(a >= b - 1e-12 for a, b in pairwise(values[top:]))
    assert all(0 <= value <= 1 for value in values)
    assert all(value >= final - 1e-12 for value in values[top:])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "linear"}, "kind of schedule"),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"warmup_steps": 1, "warmup_ratio": 0.1}, "not both"),
        ({"warmup_ratio": 1.5}, "warmup_ratio"),
        ({"final_ratio": -0.1}, "final_ratio"),
        ({"decay_ratio": math.nan}, "decay_ratio"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=named):
        ScheduleConfig(**settings)


def test_a_warm_up_longer_than_the_run_is_refused():
    with pytest.raises(ConfigError, match=r"at most the 10 optimiser steps.*got 11"):
        ScheduleConfig(warmup_steps=11).factor(0, 10)
