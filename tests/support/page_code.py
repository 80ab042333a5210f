"""The Python of a documentation page, run as a reader would run it: from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys


def run_page(page, place):
    """Run all of a page's code in a folder; what the process printed, after it has ended well.

    Any other kind of block would stand there unchecked; commands and formulas are indented, not
    fenced.
    """
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) == {"python"}
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script = place / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, script.name],
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished
