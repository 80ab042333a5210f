"""The README holds: its links and its file tree are true. Its code is run by test_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import file_tree
from support.page_code import pages

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
FILES = (PROJECT / "docs/reference/files.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", pages(), ids=lambda path: path.name)
def test_every_link_inside_the_project_leads_somewhere(document):
    # Links are relative to the file they stand in, as on any code host.
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def tree_in(page: str) -> str:
    return page.partition(file_tree.BEGIN)[2].partition(file_tree.END)[0]


def test_the_file_tree_names_every_source_file_by_its_own_first_sentence():
    # `make tree` writes it; a file added, removed or described anew needs that again.
    tree = tree_in(FILES)
    assert tree == file_tree.render()
    named = re.findall(r"^ +(\w+\.py) ", tree, re.MULTILINE)
    assert {"errors.py", "histogram.py", "app.py", "main_job.py"} <= set(named)


def test_the_readme_names_every_folder_of_the_package():
    # The same tree without files, so that the README stays short.
    tree = tree_in(README)
    assert tree == file_tree.render(folders_to=1)
    assert "core/" in tree
    assert "kernels/" not in tree
    assert "histogram.py" not in tree
