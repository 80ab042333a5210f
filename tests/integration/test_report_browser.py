"""The report in a real browser: every part is there, every plot is drawn, nothing complains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lengthwise.report import ReportData, render_html
from support.browser import Figures, opened
from support.report_fixture import comparison

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

HEADINGS = {
    "recommended": "The recommended plan",
    "warnings": "Warnings",
    "strategies": "Strategies side by side",
    "frontier": "The frontier: padding against renewal",
    "lengths": "The lengths and the boundaries",
    "buckets": "Bucket by bucket",
    "baselines": "Baselines",
    "words": "What the words mean",
    "reproduce": "How to make this report again",
}
PLOTS = (
    "efficiency",
    "batches",
    "frontier",
    "histogram",
    "bucket-efficiency",
    "bucket-padding",
    "baselines",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("report") / "report.html"
    page.write_text(render_html(ReportData.from_dict(comparison())), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def dom_and_console(report: Path) -> tuple[str, str]:
    return opened(report, "--window-size=1280,3000")


def test_every_section_has_its_heading(dom_and_console: tuple[str, str]):
    found = dict(re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', dom_and_console[0]))
    assert found == HEADINGS


def test_vega_draws_every_plot(dom_and_console: tuple[str, str]):
    # "drawn" is set after Vega finished; a page that fell back to pictures would say "picture".
    figures = Figures(dom_and_console[0])
    assert figures.state == dict.fromkeys(PLOTS, "drawn")
    assert all(number >= 6 for number in figures.shapes.values()), figures.shapes


def test_the_page_is_silent_on_the_console(dom_and_console: tuple[str, str]):
    # A blocked request, a script error or a warning of Vega would each be a line here.
    assert dom_and_console[1] == ""


def test_nothing_in_the_page_loads_from_the_network(dom_and_console: tuple[str, str]):
    # After the scripts ran, so that what they added is seen too.
    addresses = Figures(dom_and_console[0]).addresses
    assert addresses
    assert not [text for text in addresses if not text.startswith(("data:", "#"))]


def test_an_address_in_the_network_would_be_blocked_and_noticed(report: Path):
    # The console test above could not fail if the policy were not obeyed or not logged.
    text = report.read_text(encoding="utf-8")
    tampered = report.with_name("tampered.html")
    image = '<img alt="" src="http://127.0.0.1:9/x.png"></main>'
    tampered.write_text(text.replace("</main>", image, 1), encoding="utf-8")
    assert "Content Security Policy" in opened(tampered)[1]


def test_a_narrow_page_in_the_dark_draws_the_same_parts(report: Path):
    dom, console = opened(
        report, "--window-size=390,3000", "--blink-settings=preferredColorScheme=0"
    )
    assert Figures(dom).state == dict.fromkeys(PLOTS, "drawn")
    assert console == ""


def test_a_plot_that_cannot_be_drawn_shows_its_picture(report: Path):
    # One spec is broken on purpose; the others must not suffer.
    text = report.read_text(encoding="utf-8")
    first = re.search(r'(<script type="application/json">)(\{.*?\})(</script>)', text)
    assert first is not None
    broken = report.with_name("broken.html")
    broken.write_text(text.replace(first[2], '{"mark": 7}', 1), encoding="utf-8")
    figures = Figures(opened(broken)[0])
    assert figures.state == dict.fromkeys(PLOTS, "drawn") | {"efficiency": "picture"}
