"""The README holds: its code runs as written, its links and its file tree are true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import file_tree

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *PROJECT.glob("docs/**/*.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run_beside_the_data(command: list[str], folder: Path) -> str:
    """Run ``command`` in a folder that holds the project's data and an empty ``out``."""
    (folder / "data").symlink_to(PROJECT / "data")
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    finished = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_every_code_block_is_in_a_language_that_is_run_below():
    # Blocks of any other kind would stand in the README unchecked. The file tree is plain text.
    assert set(re.findall(r"^```(\w+)$", README, re.MULTILINE)) <= {"python", "sh", "text"}
    assert blocks("python")
    assert blocks("sh")


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_a_python_block_runs_as_written(code, tmp_path):
    # The prose claims what these lines print; a failing line is a false README.
    assert "of the tokens are real" in run_beside_the_data([sys.executable, "-c", code], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("sh"))
def test_a_shell_block_runs_as_written(code, tmp_path):
    # -e stops at the first command that fails. The files named in the block must be there after.
    run_beside_the_data(["bash", "-euo", "pipefail", "-c", code], tmp_path)
    written = re.findall(r"out/[\w.]+", code)
    assert written
    assert [name for name in written if not (tmp_path / name).stat().st_size] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_inside_the_project_leads_somewhere(document):
    # Links are relative to the file they stand in, as on any code host.
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_file_tree_names_every_source_file_by_its_own_first_sentence():
    # `make tree` writes it; a file added, removed or described anew needs that again.
    tree = README.partition(file_tree.BEGIN)[2].partition(file_tree.END)[0]
    assert tree == file_tree.render()
    named = re.findall(r"^ +(\w+\.py) ", tree, re.MULTILINE)
    assert {"errors.py", "histogram.py", "app.py", "main_job.py"} <= set(named)
