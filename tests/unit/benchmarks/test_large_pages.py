"""The measured parts of the pages about large data and many devices are those of the results."""

from __future__ import annotations

import billion
import large_pipeline
import locality
import pages
import pytest

RESULTS = locality.ROOT / "benchmarks" / "results"
PARTS = {
    "locality": ("locality", locality.PAGE, locality.table),
    "changed": ("locality", locality.PAGE, locality.changed_table),
    "billion": ("billion", billion.PAGE, billion.table),
    "512 devices": ("large_pipeline", large_pipeline.PAGE, large_pipeline.table),
    "links": ("large_pipeline", large_pipeline.PAGE, large_pipeline.link_table),
    "widths": ("large_pipeline", large_pipeline.GUIDE, large_pipeline.width_table),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_page_has_what_was_measured(name):
    result, page, make = PARTS[name]
    found = pages.result(RESULTS / f"{result}.json")
    assert f"<!-- {name} -->\n{make(found)}\n<!-- /{name} -->" in page.read_text(encoding="utf-8")


def test_the_figures_of_a_billion_samples_are_within_what_was_promised():
    """At most 4 bytes a sample above the mapped lengths, and 100 microseconds a batch.

    The median: the rest is also what else the machine was doing, which the page shows.
    """
    found = pages.result(RESULTS / "billion.json")
    largest = found["rows"][-1]
    assert largest["num_samples"] == 1_000_000_000
    assert largest["bytes_per_sample"] <= 4
    for view in largest["views"]:
        assert view["median_microseconds"] < 100


def test_a_small_form_of_each_runs(monkeypatch):
    """What is measured in minutes is shown to run on less."""
    monkeypatch.setattr(locality, "PER_GROUP", (8, None))
    monkeypatch.setattr(locality, "NUM_SHARDS", 16)
    found = locality.measure(quick=True)
    assert {row["shards_per_group"] for row in found["rows"]} == {8, None}
    few = [row["most_open"] for row in found["rows"] if row["shards_per_group"]]
    assert max(few) <= 16
