"""Every page holds: its code runs as written, and what cannot run here says so."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from support import page_code

PROJECT = Path(__file__).parents[2]
BLOCKS = [block for page in page_code.pages() for block in page_code.blocks(page)]


def where(block):
    return f"{block.page.name}:{block.line}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "chain", page_code.chains(), ids=lambda chain: "+".join(page.stem for page in chain)
)
def test_the_code_of_a_page_runs_as_written(chain, tmp_path):
    # Blocks build on each other and check themselves with assert; a page may use what another has
    # made. A warning of ours would mean that a page shows a use that we warn of.
    place = page_code.place_for(tmp_path)
    for page in chain:
        assert "LengthwiseWarning" not in page_code.run_page(page, place).stderr


@pytest.mark.parametrize("page", page_code.pages(), ids=lambda page: page.name)
def test_every_block_of_a_page_is_of_a_kind_that_is_checked(page):
    # Anything else would stand there unchecked: another language, a fence that is indented or not
    # closed, a command in indented text.
    known = {*page_code.RUN, *page_code.PARSED, *page_code.PLAIN}
    assert {block.language for block in page_code.blocks(page)} <= known
    fences = [
        line
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith("```")
    ]
    assert len(fences) == 2 * len(page_code.blocks(page))
    assert page_code.hidden_commands(page) == []


def test_a_block_that_does_not_run_is_code_and_gives_a_reason():
    # A mark on output or a drawing means nothing, and would be counted.
    marked = [block for block in BLOCKS if block.not_run]
    assert marked
    assert [where(b) for b in marked if b.language not in page_code.RUN] == []
    assert [where(b) for b in marked if len(b.not_run) < 10] == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.lines_of], ids=where)
def test_a_block_that_quotes_an_example_shows_its_lines(block):
    # So that what is read is what was run; the example has its own test.
    example = (PROJECT / block.lines_of).read_text(encoding="utf-8")
    lines = {line.strip() for line in example.splitlines()}
    shown = [line.strip() for line in block.code.splitlines() if line.strip()]
    assert shown
    assert [line for line in shown if line not in lines] == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in page_code.PARSED], ids=where)
def test_a_block_of_data_parses(block):
    parse = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}[block.language]
    assert parse(block.code)


def test_marks_are_read_and_counted(tmp_path):
    """A page with one block of every kind, written here: what is found is known."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n<!-- not run: needs a GPU -->\n```sh\nnvidia-smi\n```\n\n"
        "<!-- lines of: examples/a.py -->\n```python\ny\n```\n\n```\nout\n```\n"
        "\n    lengthwise scan x\n"
    )
    found = page_code.blocks(page)
    assert [block.language for block in found] == ["python", "sh", "python", ""]
    assert [block.runs for block in found] == [True, False, False, False]
    assert found[1].not_run == "needs a GPU"
    assert found[2].lines_of == "examples/a.py"
    assert page_code.hidden_commands(page) == ["    lengthwise scan x"]
    assert page_code.script_of(page).splitlines()[1] == "x = 1"


@pytest.mark.slow
def test_a_page_whose_command_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse\n```\n")
    with pytest.raises(AssertionError):
        page_code.run_page(page, tmp_path)
