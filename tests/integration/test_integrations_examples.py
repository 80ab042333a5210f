"""The training examples run, and resume to the very same weights."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
EXAMPLES = (
    "06_train_ddp.py",
    "07_train_trainer.py",
    "08_train_accelerate.py",
    "09_train_lightning.py",
    "10_train_torchdata.py",
)
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
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_resumes_to_the_same_loss(name, tmp_path):
    # The checkpoint is from the middle of epoch 1. Samples seen twice, left out or in other batches
    # would give other weights. A model that knows nothing has a loss of log 257, about 5.5.
    (whole,) = run_example(name, tmp_path)
    assert float(whole) < 5
    if name == "07_train_trainer.py":
        last = max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        shutil.rmtree(last)  # made at the very end
    assert run_example(name, tmp_path, "--resume") == [whole]
