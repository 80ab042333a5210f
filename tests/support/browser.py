"""A page in a real headless Chromium: its DOM after all scripts ran, and its console."""

from __future__ import annotations

import os
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

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
