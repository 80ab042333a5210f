"""The page on prediction holds: its table is that of the stored result."""

from __future__ import annotations

from pathlib import Path

import pages
import prediction_page

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "prediction.md"


def test_the_table_is_made_from_the_stored_result():
    """`make bench` writes both; an edit of one alone would part them."""
    found = pages.result(prediction_page.RESULT)
    marks = prediction_page.BEGIN, prediction_page.END
    between = PAGE.read_text(encoding="utf-8").split(marks[0])[1].split(marks[1])[0]
    assert between.strip() == prediction_page.table(found).strip()
