"""The loader's guides hold: the code of each runs from top to bottom, as a reader would run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.page_code import run_page

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guide", "prints"),
    [
        ("loss.md", ("loss ", "Lightning: ")),
        ("monitor.md", ("tokens/s", "  3 4.000")),
        ("sampler.md", ("epoch 0: ", "epoch 1: ")),
        ("streaming.md", ("of the tokens were real", "learned (0, ", "samples were cut")),
    ],
)
def test_the_code_of_a_guide_runs_as_written(guide, prints, tmp_path):
    # The blocks build on each other, and check themselves with assert. A warning of ours would
    # mean that a guide shows a use that we warn of.
    finished = run_page(GUIDES / guide, tmp_path)
    assert "LengthwiseWarning" not in finished.stderr
    assert [part for part in prints if part not in finished.stdout] == []
