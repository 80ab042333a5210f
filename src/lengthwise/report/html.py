"""The page: one HTML file that needs no network, from report data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.report import sections, tables, words
from lengthwise.report.page import render_page, versions

if TYPE_CHECKING:
    from lengthwise.report.data import ReportData


def render_html(data: ReportData) -> str:
    """Build the report.

    Args:
        data: the comparison; sections whose figures are missing are left out.

    Returns:
        A complete HTML document. It holds its scripts, styles and pictures, and a content security
        policy that forbids it to load anything.

    Raises:
        MissingDependencyError: jinja2 or vl-convert-python is not installed.
    """
    return render_page(
        "report.html.j2",
        sections.plots(data).values(),
        data=data,
        headline=words.headline(data),
        facts=sections.facts(data),
        recommendation=sections.recommendation(data),
        setting=sections.setting(data),
        strategies=tables.strategy_table(data),
        baselines=tables.baseline_table(data),
        glossary=words.GLOSSARY,
        origin=sections.origin(data, versions()),
    )
