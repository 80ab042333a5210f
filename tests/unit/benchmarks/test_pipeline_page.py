"""The measured parts of docs/concepts/pipeline.md are those of the result file."""

from __future__ import annotations

import pipeline_page
import pipeline_real
import pytest

OF_THE_PAGE = {
    "throughput": lambda: pipeline_page.parts(pipeline_page.read("pipeline_throughput")),
    "strategies": lambda: pipeline_page.parts(pipeline_page.read("pipeline_throughput")),
    "real": lambda: {"real": pipeline_page.real(pipeline_page.read("pipeline_real"))},
}


@pytest.mark.parametrize("name", OF_THE_PAGE)
def test_the_page_has_what_was_measured(name):
    part = OF_THE_PAGE[name]()[name]
    page = pipeline_page.PAGE.read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n{part}\n<!-- /{name} -->" in page


def test_shares_are_of_the_least_times_of_the_slower_stage():
    # The drafter's least times are 8, 9 and 10 s, each of another round; the target is quicker.
    times = {
        "drafter_alone": (8.0, 9.0), "drafter_beside": (12.0, 9.0), "drafter_span": (10.0, 12.5),
        "target_alone": (5.0, 6.0), "target_beside": (5.0, 6.0), "target_span": (9.0, 9.0),
        "drafter_busy": (9.0, 12.0), "target_busy": (5.0, 5.0),
    }  # fmt: skip
    rows = [{name: pair[index] for name, pair in times.items()} for index in (0, 1)]
    found = pipeline_real.shares_of(rows)
    assert found["slowest"] == "drafter"
    assert found["share"] == 8 / 10
    assert found["share_beside"] == 9 / 10
    assert found["busy_share"] == 12 / 12.5
