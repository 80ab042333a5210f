"""Reading a comparison: what is refused, what may be missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lengthwise.errors import DataError
from lengthwise.report.data import ReportData
from support.report_fixture import comparison, smallest_comparison


def changed(path: str, value: Any) -> dict[str, Any]:
    """The full comparison with the value at a dotted path replaced."""
    whole = comparison()
    at: Any = whole
    *outer, last = path.split(".")
    for key in outer:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    return whole


def test_a_comparison_survives_a_round_trip_through_json():
    # A report can be made again from the saved output of `compare --json`.
    again = ReportData.from_dict(json.loads(json.dumps(comparison())))
    assert again == ReportData.from_dict(comparison())


def test_the_smallest_comparison_has_empty_optional_parts():
    data = ReportData.from_dict(smallest_comparison())
    assert (data.frontier, data.baselines, data.warnings) == ((), (), ())
    assert data.histogram is None
    assert data.bucketing is None
    assert data.strategies[0].label == "random"  # a name stands in for a missing label


def test_the_recommended_and_the_random_rows_are_found():
    data = ReportData.from_dict(comparison())
    assert data.recommended is not None
    assert data.recommended.name == "pooled"
    assert data.reference is not None
    assert data.reference.name == "random"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("strategies.random.efficiency", 1.2, r"strategies\.random\.efficiency.*\[0, 1\].*1\.2"),
        ("strategies.random.efficiency", "high", r"must be a number, got 'high'"),
        ("strategies.random.num_batches", None, r"strategies\.random\.num_batches is missing"),
        ("strategies.random.num_shapes", 1.5, r"whole number, got 1\.5"),
        ("strategies.random.order_correlation", -1.5, r"\[-1, 1\]"),
        ("strategies.random.planning_seconds", float("inf"), "finite"),
        ("strategies", {}, "nothing to compare"),
        ("strategies", ["random"], r"strategies must be a mapping"),
        ("num_samples", 0, r"num_samples must be .*\[1, "),
        ("frontier.2.family", None, r"frontier\[2\]\.family is missing"),
        ("frontier", {"family": "x"}, "frontier must be a list"),
        ("bucketing.boundaries", [0, 1.5], r"bucketing\.boundaries\[1\] must be a whole number"),
        ("bucketing.buckets.0.hi", 65, r"bucketing\.buckets\[0\] is empty"),
        ("limits.max_tokens", None, r"limits\.max_tokens is missing"),
        ("strategies.random.recommended", True, "one strategy can be recommended"),
    ],
)
def test_an_impossible_value_is_refused_and_its_path_named(path: str, value: Any, said: str):
    with pytest.raises(DataError, match=said):
        ReportData.from_dict(changed(path, value))


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_figure_that_was_not_measured_is_none_and_not_an_error(missing: float | None):
    data = ReportData.from_dict(changed("strategies.random.repeat_rate", missing))
    assert data.reference is not None
    assert data.reference.repeat_rate is None


def test_a_share_a_rounding_error_above_one_counts_as_one():
    # Efficiency is a quotient of floats in the expected-cost model.
    data = ReportData.from_dict(changed("strategies.packed.efficiency", 1.0 + 1e-12))
    assert data.strategies[-1].efficiency == 1.0


def test_an_empty_bucket_wastes_nothing():
    empty = {"lo": 8_192, "hi": 9_000, "num_samples": 0, "padded_tokens": 0, "efficiency": None}
    data = ReportData.from_dict(changed("bucketing.buckets", [empty]))
    assert data.bucketing is not None
    assert data.bucketing.buckets[0].padding_tokens == 0


@pytest.mark.parametrize("key", sorted(comparison()))
def test_every_top_level_key_is_either_optional_or_named_when_missing(key: str):
    whole = comparison()
    del whole[key]
    if key in {"num_samples", "real_tokens", "limits", "strategies"}:
        with pytest.raises(DataError, match=f"{key} is missing"):
            ReportData.from_dict(whole)
    else:
        assert ReportData.from_dict(whole).num_samples == 902_087
