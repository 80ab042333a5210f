"""The page of a training run: one HTML file that needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.report.page import render_page, versions
from lengthwise.report.sections import provenance_rows
from lengthwise.report.training import sections
from lengthwise.report.training.diagnosis import section
from lengthwise.report.training.plots import plots

if TYPE_CHECKING:
    from lengthwise.diagnose import Diagnosis
    from lengthwise.report.training.run import TrainingRun


def render_training_html(run: TrainingRun, diagnosis: Diagnosis | None = None) -> str:
    """Build the report of a training run.

    Args:
        run: its records; sections without figures are left out.
        diagnosis: of the same run; None leaves the section out.

    Returns:
        A complete HTML document, which loads nothing.

    Raises:
        MissingDependencyError: jinja2 or vl-convert-python is not installed.
    """
    return render_page(
        "training.html.j2",
        plots(run).values(),
        run=run,
        diagnosis=None if diagnosis is None else section(diagnosis),
        headline=sections.headline(run),
        setting=sections.setting(run),
        facts=sections.facts(run),
        final=sections.final_table(run),
        positions=sections.position_table(run) if run.positions else None,
        evaluations=sections.evaluation_table(run) if run.evaluations else None,
        pipeline=sections.pipeline_table(run) if run.flows else None,
        bottlenecks=sections.bottlenecks(run),
        glossary=sections.GLOSSARY,
        origin=provenance_rows(run.provenance, versions()),
    )
