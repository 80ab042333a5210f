"""The page on calibration holds: its code runs from top to bottom, as a reader would run it."""

from pathlib import Path

import pytest

from support.page_code import run_page

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "calibration.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs_as_written(tmp_path):
    # The blocks build on each other, and check themselves with assert.
    finished = run_page(PAGE, tmp_path)
    for part in ("one batch: ±", "an epoch: ", "max_tokens="):
        assert part in finished.stdout
