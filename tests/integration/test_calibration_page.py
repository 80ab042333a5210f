"""The page on calibration holds: its code runs from top to bottom, as a reader would run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "calibration.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs_as_written(tmp_path):
    # The blocks build on each other, and check themselves with assert. Any other kind of block
    # would stand there unchecked; commands and formulas are indented, not fenced.
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) == {"python"}
    script = tmp_path / "page.py"
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script.write_text("\n".join(blocks), encoding="utf-8")
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
    for part in ("one batch: ±", "an epoch: ", "max_tokens="):
        assert part in finished.stdout
