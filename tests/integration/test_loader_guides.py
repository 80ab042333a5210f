"""The loader's guides hold: the code of each runs from top to bottom, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def code_of(guide: str) -> str:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    # Any other kind of block would stand there unchecked; formulas are indented, not fenced.
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) == {"python"}
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guide", "prints"),
    [
        ("loss.md", ("loss ", "Lightning: ")),
        ("monitor.md", ("tokens/s", "  3 4.000")),
        ("sampler.md", ("epoch 0: ", "epoch 1: ")),
        ("streaming.md", ("of the tokens were real", "learned (0, ", "samples were cut")),
    ],
)
def test_the_code_of_a_guide_runs_as_written(guide, prints, tmp_path):
    # The blocks build on each other, and check themselves with assert. A warning of ours would
    # mean that a guide shows a use that we warn of.
    script = tmp_path / "guide.py"
    script.write_text(code_of(guide), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "LengthwiseWarning" not in finished.stderr
    assert [part for part in prints if part not in finished.stdout] == []
