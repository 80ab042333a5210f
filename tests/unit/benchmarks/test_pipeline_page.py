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


def test_shares_are_of_the_medians_of_the_slower_stage():
    # Three rounds; the drafter is usually the slower one, though the target is once (30 s).
    times = {
        "drafter_alone": (8.0, 9.0, 90.0), "target_alone": (30.0, 5.0, 6.0),
        "drafter_beside": (12.0, 9.5, 9.0), "target_beside": (5.0, 5.0, 5.0),
        "drafter_span": (10.0, 9.0, 12.5), "target_span": (9.0, 9.0, 9.0),
        "drafter_busy": (9.0, 9.0, 10.0), "target_busy": (5.0, 5.0, 5.0),
    }  # fmt: skip
    rows = [{name: three[index] for name, three in times.items()} for index in range(3)]
    found = pipeline_real.shares_of(rows)
    assert found["slowest"] == "drafter"
    assert found["share"] == 9 / 10
    assert found["share_beside"] == 9.5 / 10
    assert found["busy_share"] == 0.9  # the middle one of 9/10, 9/9 and 10/12.5
