"""The histogram cut into bars: nothing is lost, and there are few enough to look at."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.histogram import LengthHistogram
from lengthwise.report.bins import MOST_BARS, bin_histogram

HISTOGRAMS = st.dictionaries(st.integers(1, 10**7), st.integers(1, 10**6), min_size=1, max_size=60)


@given(HISTOGRAMS)
def test_every_sample_is_in_exactly_one_of_at_most_200_bars(counts: dict[int, int]):
    bins = bin_histogram(LengthHistogram.from_counts(list(counts), list(counts.values())))
    assert 1 <= len(bins.rows) <= MOST_BARS
    for row in bins.rows:  # the plain count is the oracle
        inside = sum(n for length, n in counts.items() if row["lo"] <= length < row["hi"])
        assert row["samples"] == inside
    assert sum(row["samples"] for row in bins.rows) == sum(counts.values())


@given(HISTOGRAMS)
def test_bars_touch_each_other_and_are_not_empty_intervals(counts: dict[int, int]):
    rows = bin_histogram(LengthHistogram.from_counts(list(counts), list(counts.values()))).rows
    assert all(row["lo"] < row["hi"] for row in rows)
    assert all(a["hi"] == b["lo"] for a, b in pairwise(rows))
    assert rows[0]["lo"] == min(counts)
    assert rows[-1]["hi"] == max(counts) + 1


def test_a_long_tail_gets_a_logarithmic_axis_on_which_areas_compare():
    # Median 96, longest 40,000. A bar's width on the axis is log2(hi / lo) doublings, so its area
    # is its samples if its height is samples per doubling.
    bins = bin_histogram(LengthHistogram.from_counts([64, 96, 700, 40_000], [5, 10, 3, 1]))
    assert bins.is_log
    for row in bins.rows:
        assert row["height"] * math.log2(row["hi"] / row["lo"]) == pytest.approx(row["samples"])


def test_a_short_tail_gets_a_linear_axis_with_equal_bars():
    bins = bin_histogram(LengthHistogram.from_counts([100, 500, 1_099], [1, 3, 1]))
    assert not bins.is_log
    assert {row["hi"] - row["lo"] for row in bins.rows} == {5}  # 1,000 tokens in 200 bars
    assert all(row["height"] == row["samples"] for row in bins.rows)


def test_one_length_is_one_bar():
    bins = bin_histogram(LengthHistogram.from_counts([512], [9]))
    assert [(row["lo"], row["hi"], row["samples"]) for row in bins.rows] == [(512, 513, 9)]
    assert bins.rows[0]["range_text"] == "512"
