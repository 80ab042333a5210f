"""The measured parts of docs/concepts/pipeline.md are those of the result file."""

from __future__ import annotations

import json

import pipeline_page
import pytest


@pytest.mark.parametrize("name", ["throughput", "strategies"])
def test_the_page_has_what_was_measured(name):
    found = json.loads(pipeline_page.RESULT.read_text(encoding="utf-8"))["result"]
    part = pipeline_page.parts(found)[name]
    page = pipeline_page.PAGE.read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n{part}\n<!-- /{name} -->" in page
