"""Tables as text: what is in them, and what a narrow terminal keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.report.data import ReportData
from lengthwise.report.tables import (
    baseline_table,
    bucket_table,
    frontier_table,
    parameter,
    strategy_table,
)
from support.report_fixture import comparison, smallest_comparison

DATA = ReportData.from_dict(comparison())
GAP = 2


def test_the_strategy_table_has_a_row_a_strategy_and_the_bound_last():
    table = strategy_table(DATA)
    assert len(table.rows) == 6
    assert table.rows[-1][0] == "packed without padding"
    assert [table.rows[place][0] for place in table.marked] == ["pool at 98 % efficiency"]


def test_columns_without_any_figure_are_left_out():
    table = strategy_table(ReportData.from_dict(smallest_comparison()))
    assert [column.header for column in table.columns] == ["strategy", "efficiency", "batches"]


@pytest.mark.parametrize("width", [100, 80])
def test_the_strategy_table_fits_and_keeps_what_matters_most(width: int):
    table, left_out = strategy_table(DATA).fitted(width, GAP)
    lines = [max(len(row[at]) for row in table.rows) + GAP for at in range(len(table.columns))]
    assert sum(lines) <= width
    kept = {column.header for column in table.columns}
    assert {"strategy", "efficiency", "batches", "repeat rate", "design effect"} <= kept
    assert len(table.columns) + len(left_out) == len(strategy_table(DATA).columns)


@given(st.integers(1, 300))
def test_whatever_the_width_every_column_is_shown_or_named(width: int):
    whole = strategy_table(DATA)
    table, left_out = whole.fitted(width, GAP)
    assert [c.short for c in table.columns] + list(left_out) != []
    assert {c.short for c in table.columns} | set(left_out) == {c.short for c in whole.columns}
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_frontier_table_keeps_the_order_and_writes_parameters_for_people():
    rows = frontier_table(DATA.frontier).rows
    assert [row[1] for row in rows if row[0] == "windowed"][-1] == "4,096"
    assert [row[1] for row in rows if row[0] == "pooled"] == ["90 %", "95 %", "98 %", "99 %"]


@pytest.mark.parametrize(("value", "text"), [(6, "6"), (1024.0, "1,024"), (0.985, "98.5 %")])
def test_a_parameter_is_a_count_or_a_target(value: float, text: str):
    assert parameter(value) == text


def test_the_shares_of_padding_add_up_to_all_of_it():
    assert DATA.bucketing is not None
    shares = [float(row[-1].removesuffix(" %")) for row in bucket_table(DATA.bucketing).rows]
    # Six figures rounded to a tenth are each off by at most 0.05.
    assert sum(shares) == pytest.approx(100, abs=0.3)


def test_the_baselines_stand_below_the_optimum_best_first():
    names = [row[0] for row in baseline_table(DATA).rows]
    assert names[:3] == ["optimal", "published", "equal count"]
