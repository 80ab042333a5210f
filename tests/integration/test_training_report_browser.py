"""The training report in a real browser: every plot is drawn, nothing complains or is loaded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lengthwise.report.training import TrainingRun, render_training_html
from support.browser import Figures, opened
from support.training_records import pipeline_records

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

HEADINGS = {
    "now": "Where it stands",
    "acceptance": "Acceptance",
    "loss": "Loss",
    "accuracy": "Accuracy",
    "optimiser": "The optimiser",
    "speed": "Speed",
    "pipeline": "The pipeline",
    "figures": "The figures",
    "words": "What the words mean",
    "reproduce": "How to make this report again",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("report") / "report.html"
    page.write_text(render_training_html(TrainingRun.from_records(pipeline_records())), "utf-8")
    return page


@pytest.mark.parametrize(
    "options",
    [
        ("--window-size=1280,3000",),
        ("--window-size=500,3000", "--blink-settings=preferredColorScheme=0"),
    ],
    ids=["wide", "narrow and dark"],
)
def test_every_part_is_drawn_in_silence(report: Path, options: tuple[str, ...]):
    # "drawn" is set after Vega finished; the console would tell of errors and of blocked requests.
    dom, console = opened(report, *options)
    assert dict(re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', dom)) == HEADINGS
    figures = Figures(dom)
    assert len(figures.state) == 12
    assert set(figures.state.values()) == {"drawn"}
    assert all(number >= 6 for number in figures.shapes.values()), figures.shapes
    assert console == ""
    assert not [text for text in figures.addresses if not text.startswith(("data:", "#"))]
