"""Places on the frontier's logarithmic axes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.report.data import FrontierPoint, StrategyRow
from lengthwise.report.placing import domain, label_points, log_ticks, placed_points

SHARES = st.floats(0, 1)


def row(efficiency: float | None, rate: float | None) -> StrategyRow:
    return StrategyRow("x", "x", "x", 10, efficiency=efficiency, repeat_rate=rate)


def points(pairs: list[tuple[float, float]]) -> list[FrontierPoint]:
    return [FrontierPoint("windowed", at + 1, *pair) for at, pair in enumerate(pairs)]


@given(st.lists(st.tuples(SHARES, SHARES), max_size=8), SHARES, SHARES)
def test_every_point_and_the_mark_stand_inside_the_axes(
    pairs: list[tuple[float, float]], efficiency: float, rate: float
):
    # A repeat rate of 0 (tiny data) and a padding of 0 (equal lengths) have no logarithm.
    rows, mark = placed_points(points(pairs), row(efficiency, rate))
    assert len(rows) == len(pairs)
    assert len(mark) == 1
    for name in ("rate", "padding"):
        places = [one[name] for one in [*rows, *mark]]
        lo, hi = domain(places)
        assert all(0 < lo < place < hi for place in places)


def test_a_place_is_the_true_value_wherever_that_has_a_logarithm():
    rows, mark = placed_points(points([(0.9, 0.001), (1.0, 0.0)]), row(0.95, 0.002))
    assert (rows[0]["rate"], rows[0]["padding"]) == (0.001, pytest.approx(0.1))
    assert (rows[1]["rate"], rows[1]["rate_text"]) == (0.0005, "0")  # half of the least, true text
    assert rows[1]["efficiency_text"] == "100.0 %"
    assert mark[0]["rate"] == 0.002


@pytest.mark.parametrize("missing", [None, row(0.9, None), row(None, 0.1)])
def test_there_is_no_mark_where_the_recommended_plan_has_no_place(missing: StrategyRow | None):
    assert placed_points(points([(0.9, 0.001)]), missing)[1] == []


def test_labels_do_not_touch_and_the_ends_of_a_family_come_first():
    crowded = [(0.5 + at / 100, 0.001 * 1.02**at) for at in range(40)]
    rows, _ = placed_points(points(crowded), None)
    labelled = label_points(rows, [])
    assert labelled[0] == rows[0]
    assert labelled[-1] == rows[-1]
    assert 2 < len(labelled) < 40


def test_no_point_no_label():
    assert label_points([], []) == []


@given(st.floats(1e-9, 1), st.floats(1.1, 1e6))
def test_ticks_are_inside_the_axis_and_rise(lo: float, ratio: float):
    ticks = log_ticks(lo, lo * ratio)
    assert ticks == sorted(set(ticks))
    assert all(lo <= tick <= lo * ratio for tick in ticks)
    if ratio > 10.001:
        assert ticks, "an axis over a whole decade has at least its power of ten"


def test_ticks_are_what_people_read():
    assert log_ticks(0.00009, 0.003) == [0.0001, 0.0002, 0.0005, 0.001, 0.002]
    assert log_ticks(1e-6, 1.0) == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
