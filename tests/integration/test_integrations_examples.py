"""The training examples run, and resume to the very same weights; the guides show their lines."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
GUIDES = {
    "ddp.md": "06_train_ddp.py",
    "torchdata.md": "10_train_torchdata.py",
    "accelerate.md": "08_train_accelerate.py",
    "lightning.md": "09_train_lightning.py",
    "transformers.md": "07_train_trainer.py",
}
PROCESSES = {"06_train_ddp.py": 2, "08_train_accelerate.py": 1, "07_train_trainer.py": 1}
"""Of torchrun; the conformance test runs all of them on two."""


def run_example(name, output, *options):
    """What it printed last: the loss of the trained model on some samples."""
    launcher = [sys.executable]
    if name in PROCESSES:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        launcher += [str(PROCESSES[name])]
    finished = subprocess.run(
        [*launcher, PROJECT / "examples" / name, "--output-dir", output, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "LengthwiseWarning" not in finished.stderr
    return re.findall(r"^loss (\d\.\d{4})$", finished.stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES.values())
def test_an_example_resumes_to_the_same_loss(name, tmp_path):
    # The checkpoint is from the middle of epoch 1. Samples seen twice, left out or in other batches
    # would give other weights. A model that knows nothing has a loss of log 257, about 5.5.
    (whole,) = run_example(name, tmp_path)
    assert float(whole) < 5
    if name == "07_train_trainer.py":
        last = max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        shutil.rmtree(last)  # made at the very end
    assert run_example(name, tmp_path, "--resume") == [whole]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_shows_lines_of_its_example(guide):
    # So that what is read is what was run.
    text = (PROJECT / "docs/guides" / guide).read_text(encoding="utf-8")
    example = (PROJECT / "examples" / GUIDES[guide]).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    lines = [line.strip() for line in example.splitlines()]
    for block in blocks:
        shown = [line.strip() for line in textwrap.dedent(block).splitlines() if line.strip()]
        assert [line for line in shown if line not in lines] == []
    assert f"examples/{GUIDES[guide]}" in text
