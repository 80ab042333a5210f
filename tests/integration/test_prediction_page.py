"""The page on prediction holds: its code runs, and its table is that of the stored result."""

from __future__ import annotations

import json
from pathlib import Path

import prediction_page
import pytest

from support.page_code import run_page

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "prediction.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs_as_written(tmp_path):
    # It checks itself with assert: the interval holds the prediction, the parts sum up to it.
    finished = run_page(PAGE, tmp_path)
    assert "tokens/s" in finished.stdout


def test_the_table_is_made_from_the_stored_result():
    """`make bench` writes both; an edit of one alone would part them."""
    found = json.loads(prediction_page.RESULT.read_text(encoding="utf-8"))["result"]
    marks = prediction_page.BEGIN, prediction_page.END
    between = PAGE.read_text(encoding="utf-8").split(marks[0])[1].split(marks[1])[0]
    assert between.strip() == prediction_page.table(found).strip()
