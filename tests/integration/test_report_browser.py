"""The report in a real browser: every part is there, every plot is drawn, nothing complains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from lengthwise.report import ReportData, render_html
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
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
)


class Figures(HTMLParser):
    """Reads the DOM: each plot's state and number of drawn marks, and all addresses."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.state: dict[str, str | None] = {}
        self.shapes: dict[str, int] = {}
        self.addresses: list[str] = []
        self._plot = ""
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        linking = ("src", "href", "xlink:href", "srcset", "action")
        self.addresses += [text for name in linking if (text := found.get(name))]
        if tag == "figure":
            self._plot = (found.get("id") or "").removeprefix("plot-")
            self.state[self._plot] = found.get("data-state")
            self.shapes[self._plot] = 0
        elif tag == "path" and self._plot and found.get("d"):
            self.shapes[self._plot] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "figure":
            self._plot = ""


def browser() -> str:
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None and os.environ.get("CI"):
        pytest.fail("CI must open the report in a browser: install chromium")
    if found is None:
        pytest.skip("no Chromium or Chrome on the PATH; install one to open the report in it")
    return found


def opened(page: Path, *options: str) -> tuple[str, str]:
    """The DOM after all scripts ran, and the lines that the page wrote to the console."""
    profile = page.parent / "profile"
    finished = subprocess.run(
        [
            browser(),
            *QUIET,
            *options,
            f"--user-data-dir={profile}",
            "--virtual-time-budget=20000",
            "--enable-logging=stderr",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    console = [line for line in finished.stderr.splitlines() if ":CONSOLE" in line]
    return finished.stdout, "\n".join(console)


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
