"""The concept's page shows what was measured."""

from __future__ import annotations

import pages
import simulation


def test_the_page_has_the_table_of_the_recorded_results():
    # Filled in by `python benchmarks/run.py simulation`; a table of older results would mislead.
    path = simulation.PAGE.parents[2] / "benchmarks" / "results" / "simulation.json"
    found = pages.result(path)
    text = simulation.PAGE.read_text(encoding="utf-8")
    shown = text.split("<!-- measured -->\n")[1].split("\n<!-- /measured -->")[0]
    assert shown == simulation.table(found)
