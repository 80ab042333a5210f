"""The comparison in a terminal: fits the width, loses nothing silently."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from lengthwise.cli import compare_view
from lengthwise.cli.options import read_boundaries
from lengthwise.errors import ConfigError
from lengthwise.report.data import FrontierPoint, ReportData
from support.report_fixture import comparison, smallest_comparison


def printed(data: ReportData, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    monkeypatch.setattr(compare_view, "console", lambda: out)
    compare_view.print_comparison(data)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("width", [140, 100, 80])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(
    width: int, monkeypatch: pytest.MonkeyPatch
):
    text = printed(ReportData.from_dict(comparison()), width, monkeypatch)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for number in ("40,260", "98.0 %", "0.00061", "82,721"):
        assert number in text


def test_columns_without_room_are_named(monkeypatch: pytest.MonkeyPatch):
    text = printed(ReportData.from_dict(comparison()), 80, monkeypatch)
    assert "left out for lack of width: " in text
    assert "plan time" in text
    assert "left out for lack" not in printed(ReportData.from_dict(comparison()), 140, monkeypatch)


def test_the_recommended_plan_is_marked_without_colour(monkeypatch: pytest.MonkeyPatch):
    lines = printed(ReportData.from_dict(comparison()), 100, monkeypatch).splitlines()
    assert [line for line in lines if line.startswith("→ ")] == [
        line for line in lines if line.startswith("→ pool at 98 % efficiency")
    ]


def test_the_smallest_comparison_prints(monkeypatch: pytest.MonkeyPatch):
    text = printed(ReportData.from_dict(smallest_comparison()), 80, monkeypatch)
    assert "the recommended plan (windowed)" in " ".join(text.split())
    assert "Strategies side by side, one epoch each\n" in text


def test_markup_in_a_label_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch):
    whole = comparison()
    whole["strategies"]["random"]["label"] = "[bold]x[/bold] [/]"
    text = printed(ReportData.from_dict(whole), 100, monkeypatch)
    assert "[bold]x[/bold] [/]" in text


@given(st.integers(1, 30))
def test_a_thinned_family_keeps_its_ends(number: int):
    points = tuple(FrontierPoint("a", float(at), 0.5, 0.1) for at in range(number))
    kept = compare_view.thinned(points)
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert len(kept) == min(number, 4)


@pytest.mark.parametrize("text", ["0,770,8192", "0 770 8192", "[0, 770, 8192]"])
def test_boundaries_are_whole_numbers_between_commas_or_spaces(text: str):
    assert read_boundaries(text) == (0, 770, 8192)


@pytest.mark.parametrize("text", ["0,7.5", "a,b", "0,-1"])
def test_other_boundaries_are_refused(text: str):
    with pytest.raises(ConfigError, match="whole numbers such as 0,770,1216,8192"):
        read_boundaries(text)
