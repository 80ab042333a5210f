"""The page on training says what the last result says, to the digit."""

from __future__ import annotations

import json

import pytest
import training_page as page


@pytest.fixture(scope="module")
def document():
    return json.loads(page.RESULT.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", ["setting", "speed", "speed-found", "loss", "loss-found", "noise", "noise-found"]
)
def test_every_generated_part_of_the_page_is_that_of_the_result(document, name):
    """Written anew from the stored result it is the same text: no number was typed by hand."""
    part = page.parts(document["result"], document["machine"])[name]
    text = page.PAGE.read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n{part}\n<!-- /{name} -->" in text


def test_speed_is_real_tokens_a_second_over_those_of_sorted():
    """600 tokens in 3 s against 500 in 2 s: 200 over 250."""
    run = {"real_tokens": 600, "cpu_seconds": 3.0, "wall_seconds": 12.0}
    base = {"real_tokens": 500, "cpu_seconds": 2.0, "wall_seconds": 10.0}
    assert page.speed("cpu")(run, base) == pytest.approx(0.8)
    assert page.speed("wall")(run, base) == pytest.approx(1.0)
