"""The guides to DFlash hold: their code runs as written, one guide after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from lengthwise.dflash.training.config import parse_train_config

PROJECT = Path(__file__).parents[2]
GUIDES = PROJECT / "docs" / "guides"
IN_ORDER = (
    "dflash-prepare.md",
    "dflash-train.md",
    "dflash-evaluate.md",
    "dflash-export.md",
    "promise-to-measurement.md",
)
"""Each uses what those before it have made."""
SMALL = yaml.safe_load((PROJECT / "examples" / "dflash_small.yaml").read_text(encoding="utf-8"))


def blocks(guide):
    """(language, code) of every fenced block, in order."""
    text = (GUIDES / guide).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Looks like the project's root: its data and examples, and nothing made yet."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("data", "examples"):
        (folder / name).symlink_to(PROJECT / name)
    return folder


def run(command, folder):
    scripts = sysconfig.get_path("scripts")
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    finished = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    return finished.stdout


@pytest.mark.slow
@pytest.mark.parametrize("guide", IN_ORDER)
def test_the_commands_of_a_guide_run_as_written(guide, place):
    # -e stops at the first command that fails; every file that a block names must be there after.
    for language, code in blocks(guide):
        if language == "sh":
            run(["bash", "-euo", "pipefail", "-c", code], place)
            made = re.findall(r"(?:--output|--html|>) (out/\S+)", code)
            assert [name for name in made if not (place / name).exists()] == []
        elif language == "python":
            assert "tokens per verification" in run([sys.executable, "-c", code], place)


@pytest.mark.parametrize("guide", IN_ORDER)
def test_every_block_is_of_a_kind_that_is_tested(guide):
    found = {language for language, _ in blocks(guide)}
    assert "sh" in found
    assert found <= {"sh", "python", "yaml"}


@pytest.mark.parametrize(
    "text", [code for guide in IN_ORDER for language, code in blocks(guide) if language == "yaml"]
)
def test_a_piece_of_config_fits_into_a_config(text):
    assert parse_train_config({**SMALL, **yaml.safe_load(text)})
