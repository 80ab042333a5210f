"""The numbered examples: short, in order, and run by the commands that they name themselves."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from support.page_code import place_for

PROJECT = Path(__file__).parents[2]
EXAMPLES = sorted((PROJECT / "examples").glob("[0-9][0-9]_*.py"))


def commands_of(example):
    """The command lines in an example's docstring."""
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))
    return re.findall(r"^(?:python|torchrun) .*$", text, re.MULTILINE)


def run(command, place):
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    finished = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-6000:]
    assert "LengthwiseWarning" not in finished.stderr
    return finished.stdout


def final_loss(output):
    return re.findall(r"^loss (\d\.\d{4})$", output, re.MULTILINE)


def test_examples_are_numbered_without_a_gap_and_short():
    # Numbers are the order of reading; below 80 lines an example is read, not searched.
    numbers = [int(example.name[:2]) for example in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    long = [e.name for e in EXAMPLES if len(e.read_text(encoding="utf-8").splitlines()) >= 80]
    assert long == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run_and_stands_on_the_page(example):
    # The test below runs nothing else.
    assert commands_of(example)
    assert all(f"examples/{example.name}" in command for command in commands_of(example))
    page = (PROJECT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f"(../examples/{example.name})" in page


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_by_its_own_commands(example, tmp_path):
    # Examples check themselves with assert. One that resumes does so from a checkpoint in the
    # middle of its last epoch: samples seen twice, left out or in other batches would give other
    # weights. A model that knows nothing has a loss of log 257, about 5.5.
    place = place_for(tmp_path)
    first, *others = commands_of(example)
    printed = run(first, place)
    assert printed
    for command in others:
        assert command == f"{first} --resume"
        (loss,) = final_loss(printed)
        assert float(loss) < 5
        checkpoints = sorted(place.glob("out/trainer/checkpoint-*"), key=_step)
        for made_at_the_end in checkpoints[-1:]:
            shutil.rmtree(made_at_the_end)
        assert final_loss(run(command, place)) == [loss]


def _step(checkpoint):
    return int(checkpoint.name.split("-")[1])
