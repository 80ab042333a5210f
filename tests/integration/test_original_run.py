"""The worked example of the simulation: what it reproduces, what adds up, what its page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import original_run

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "simulation.md"


@pytest.fixture(scope="module")
def run():
    return original_run.fit(original_run.plan())


def test_the_three_measured_rates_come_out_within_five_percent(run):
    # Two are fitted, so they must come out; the third is a prediction.
    errors = {
        name: run.rate(name) / measured - 1 for name, measured in original_run.MEASURED.items()
    }
    assert abs(errors["sorted"]) < 0.001
    assert abs(errors["random"]) < 0.001
    assert abs(errors["buckets"]) < 0.05


def test_the_targets_are_the_bottleneck_as_the_empty_queue_showed(run):
    assert run.simulate("random").bottleneck.kind == "targets"
    assert run.simulate("buckets").bottleneck.kind == "targets"


def test_the_causes_lead_from_the_promise_to_the_measurement(run):
    # Parts that did not add up would hide a cause, or count one twice.
    *parts, (_, measured) = original_run.causes(run)
    assert sum(points for _, points in parts) == pytest.approx(measured)
    assert measured == pytest.approx(25.1 / 32.0)


def test_no_choice_of_the_two_numbers_reaches_the_measured_ratio(run):
    # A ratio of sums of two parts lies between the ratios of the parts.
    first, second = (original_run._sums(run.batches[name]) for name in ("sorted", "buckets"))
    tokens, squares = (first[part] / second[part] for part in (1, 2))
    assert tokens == pytest.approx(0.873, abs=0.001)
    assert squares == pytest.approx(0.799, abs=0.001)
    assert squares > original_run.MEASURED["buckets"] / original_run.MEASURED["sorted"]


def test_the_packing_error_of_the_run_is_no_explanation_of_its_random_rate(run):
    # The error in plain Python: the budget is checked with the newest sample as the longest.
    order = original_run.run_lengths()
    sizes, longest = [0], [0]
    for length in order.tolist():
        if (sizes[-1] + 1) * length > 49_152 or sizes[-1] == 64:
            sizes.append(0)
            longest.append(0)
        sizes[-1] += 1
        longest[-1] = max(longest[-1], length)
    padded = np.array(sizes) * np.array(longest)
    assert order.sum() / padded.sum() == pytest.approx(0.467, abs=0.001)
    assert round(int(padded.max()), -3) == 186_000


def test_the_page_has_the_tables_that_the_script_makes(run):
    # Written by `python examples/original_run.py --write`.
    text = PAGE.read_text(encoding="utf-8")
    found = text.split("<!-- original run -->\n")[1].split("\n<!-- /original run -->")[0]
    assert found == original_run.report(run)


def test_the_page_s_example_runs_and_names_a_bottleneck(capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(code, {})
    assert "the targets are the bottleneck" in capsys.readouterr().out
