"""The comparison in a terminal: tables that fit its width, a sparkline, and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.cli.output import console
from lengthwise.cli.report_table import print_report_table
from lengthwise.report import sections, tables, words

if TYPE_CHECKING:
    from rich.console import Console

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.report.data import FrontierPoint, ReportData

_POINTS_A_FAMILY = 4


def print_comparison(data: ReportData) -> None:
    """Print the comparison on standard output, in the width of the terminal."""
    out = console()
    out.print(sections.setting(data), markup=False, style="dim")
    if data.histogram is not None:
        _print_sparkline(out, data.histogram)
    out.print()
    print_report_table(out, tables.strategy_table(data))
    out.print()
    out.print(words.headline(data), markup=False, style="bold")
    if data.reason:
        out.print(data.reason, markup=False)
    if data.frontier:
        shown = thinned(data.frontier)
        out.print()
        print_report_table(out, tables.frontier_table(shown))
        if len(shown) < len(data.frontier):
            note = f"{len(shown)} of {len(data.frontier)} points; --json and --html have all"
            out.print(note, style="dim")


def thinned(points: tuple[FrontierPoint, ...]) -> list[FrontierPoint]:
    """At most four points a family, its ends among them, in the order of the comparison."""
    families: dict[str, list[FrontierPoint]] = {}
    for point in points:
        families.setdefault(point.family, []).append(point)
    kept: list[FrontierPoint] = []
    for family in families.values():
        steps = min(_POINTS_A_FAMILY, len(family)) - 1
        places = {round(step * (len(family) - 1) / max(1, steps)) for step in range(steps + 1)}
        kept += [family[place] for place in sorted(places)]
    return kept


def _print_sparkline(out: Console, histogram: LengthHistogram) -> None:
    ends = f"{histogram.shortest:,}", f"{histogram.longest:,} tokens"
    room = min(60, out.width - len(ends[0]) - len(ends[1]) - 10)
    if room >= 10:
        line = f"lengths {ends[0]} {histogram.sparkline(room)} {ends[1]}"
        out.print(line, markup=False, no_wrap=True)
