"""The site builds without a warning and loads nothing from elsewhere; its parts are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

import api_pages
import cli_page
import docstring_roles
import draw_pictures
import lengthwise
from support.browser import browser
from support.page_code import pages

PROJECT = Path(__file__).parents[2]
SETTINGS = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")


class Loaded(HTMLParser):
    """Addresses that a page loads by itself; links that a reader may follow are none."""

    def __init__(self, page):
        super().__init__()
        self.addresses = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "link" and found.get("rel") not in {"canonical", "prev", "next"}:
            self.addresses.append(found.get("href") or "")
        elif tag in {"script", "img", "iframe", "source", "video"}:
            self.addresses.append(found.get("src") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert built.returncode == 0, "\n".join(
        line for line in built.stderr.splitlines() if not line.startswith("INFO")
    )
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(site):
    # Strict: every link and anchor leads somewhere, every page is in the navigation. It is for
    # reading without a network, and tells nobody that it is read.
    files = sorted(site.rglob("*.html"))
    assert len(files) > 60
    elsewhere = {
        (path.name, address)
        for path in files
        for address in Loaded(path.read_text(encoding="utf-8")).addresses
        if re.match(r"(?:\w+:)?//", address)
    }
    assert elsewhere == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", styles)


@pytest.mark.slow
@pytest.mark.browser
def test_a_page_and_the_search_work_in_a_browser_without_a_network_or_a_server(site, tmp_path):
    # With every host unreachable, the page opened as a file, nothing complains; the address asks
    # the search, which a file gets from a frame instead of a worker.
    finished = subprocess.run(
        [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=10000",
            "--enable-logging=stderr",
            "--dump-dom",
            f"{(site / 'index.html').as_uri()}?q=padding",
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert finished.returncode == 0
    assert re.search(r"\d+ matching documents", finished.stdout)
    assert [line for line in finished.stderr.splitlines() if ":CONSOLE" in line] == []


@pytest.mark.slow
def test_sources_that_pages_link_to_are_pages(site):
    # On a code host the link leads to the file; here to a copy of it.
    source = (site / "source/src/lengthwise/core/remix.py.html").read_text(encoding="utf-8")
    assert "Plan the steps that draw from a pool which batches fill." in source
    page = (site / "concepts" / "dflash.html").read_text(encoding="utf-8")
    assert 'href="../source/src/lengthwise/core/remix.py.html"' in page


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"[\w./-]+\.md\b", SETTINGS.partition("\nnav:\n")[2]))
    docs = PROJECT / "docs"
    there = {page.relative_to(docs).as_posix() for page in pages() if page.is_relative_to(docs)}
    assert there - named == set()


def test_the_page_of_commands_is_current():
    # `make tree` writes it.
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.render()


@pytest.mark.slow
@pytest.mark.parametrize("name", draw_pictures.PICTURES)
def test_a_picture_is_drawn_from_the_plans_of_today(name):
    # `python docs/draw_pictures.py` draws them anew. Both themes are in it, and no address.
    picture = (draw_pictures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert picture == draw_pictures.PICTURES[name]().svg()
    assert "prefers-color-scheme: dark" in picture
    assert "<title>" in picture


def test_the_api_pages_describe_every_public_name():
    """Each name of the package's own ``__all__`` stands on a page, once."""
    found = api_pages.packages()
    names = {path.rsplit(".", 1)[1] for path in found["lengthwise"]}
    assert names == set(lengthwise.__all__) - {"__version__"}
    every = {path for paths in found.values() for path in paths}
    directives = [
        line
        for package in found
        for line in api_pages.page(package).splitlines()
        if line.startswith("::: ")
    ]
    assert sorted(directives) == sorted(f"::: {path}" for path in every)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see :class:`~lengthwise.core.limits.BatchLimits`",
         "see [`BatchLimits`][lengthwise.core.limits.BatchLimits]"),
        ("see :func:`nowhere.at_all`", "see `nowhere.at_all`"),
        ("a ``literal``", "a `literal`"),
    ],
)  # fmt: skip
def test_roles_of_docstrings_become_markdown(text, expected):
    assert docstring_roles.plain(text) == expected


def test_the_citation_file_has_what_its_schema_requires():
    # https://github.com/citation-file-format, version 1.2.0: these four keys and no unknown ones.
    found = yaml.safe_load((PROJECT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= found.keys()
    allowed = {"cff-version", "message", "title", "authors", "type", "version", "license",
               "abstract", "keywords"}  # fmt: skip
    assert found.keys() <= allowed
    assert found["type"] == "software"
    assert found["version"] == lengthwise.__version__
    assert all(set(author) == {"name"} for author in found["authors"])
