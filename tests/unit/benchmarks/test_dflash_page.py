"""The page on DFlash says what code and results say; every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pages
import pytest
import remix

import dflash_page as page

ROOT = Path(__file__).parents[3]
TEXT = page.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["remix", "mixed"])
def test_the_tables_of_the_pool_are_those_of_the_result(name):
    """Written anew from the stored result they are the same text: no number was typed by hand."""
    part = remix.parts(pages.result(remix.RESULT))[name]
    assert f"<!-- {name} -->\n{part}\n<!-- /{name} -->" in TEXT


def test_the_defaults_are_those_of_the_code():
    # `python docs/dflash_page.py` writes them anew.
    assert f"<!-- defaults -->\n{page.defaults()}\n<!-- /defaults -->" in TEXT
    assert page.PICTURE.read_text(encoding="utf-8") == page.picture()


def test_every_test_that_the_page_names_exists():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(sources), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 10
    assert named <= defined


def test_the_picture_shows_the_four_conditions():
    """Counted by hand: 3 + 5 + 3 columns of context, four places of the own block, four rows."""
    cells = [
        page.sees(block, column)
        for block in range(3)
        for _ in range(page.BLOCK_SIZE)
        for column in range(sum(page.DOCUMENTS) + 3 * page.BLOCK_SIZE)
    ]
    assert sum(cells) == 4 * ((3 + 4) + (5 + 4) + (3 + 4))
    assert page.picture().count(f'fill="{page.CONTEXT}"') == 4 * (3 + 5 + 3) + 1  # and the legend
