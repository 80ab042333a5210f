"""Lengths that are valid one by one and look wrong together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import LengthwiseWarning
from lengthwise.lengths.api import read_lengths, scan_lengths
from lengthwise.lengths.checks import warnings_for

ORDINARY = [7, 3, 9, 4, 8, 2, 6]


def test_ordinary_lengths_give_no_warning():
    assert warnings_for(ORDINARY) == []
    assert warnings_for(ORDINARY, BatchLimits(max_tokens=9)) == []


def test_equal_lengths_are_padded_rows_or_a_count_that_never_ran():
    assert warnings_for([512] * 40)[0].startswith("all 40 lengths are 512: are the rows padded")


def test_a_length_that_dominates_is_a_sign_of_truncation():
    lengths = [2_048] * 60 + list(range(1, 41))
    (warning,) = warnings_for(np.random.default_rng(0).permutation(lengths))
    assert warning.startswith("60.0 % of the samples have exactly 2,048 tokens")
    assert (
        warnings_for(np.random.default_rng(0).permutation([2_048] * 40 + list(range(1, 41)))) == []
    )


@given(st.lists(st.integers(1, 50), max_size=30))
def test_sorted_means_that_sorting_changes_nothing(lengths):
    found = [warning for warning in warnings_for(lengths) if "sorted by length" in warning]
    expected = None
    if len(lengths) >= 5 and len(set(lengths)) > 1:
        if lengths == sorted(lengths):
            expected = "(rising)"
        elif lengths == sorted(lengths, reverse=True):
            expected = "(falling)"
    assert [expected in warning for warning in found] == ([True] if expected else [])


def test_order_is_checked_across_blocks():
    rising = np.arange(1, 200_001)
    assert any("(rising)" in warning for warning in warnings_for(rising))
    rising[131_072] = 1
    assert warnings_for(rising) == []


def test_samples_above_the_budget_are_counted_and_named():
    limits = BatchLimits(max_tokens=70, pad_to_multiple_of=16)
    (warning,) = warnings_for([64, 65, 3, 80, 9, 70], limits)
    assert warning.startswith(
        "3 samples are longer than 64 tokens, the longest that fits max_tokens = 70 (rows 1, 3, 5)"
    )
    scan = scan_lengths([None, 3, 80], on_bad="skip")
    assert "(rows 2)" in warnings_for(scan, limits)[0]
    (warning,) = warnings_for(LengthHistogram.from_lengths([3, 80]), limits)
    assert warning.startswith("1 sample is longer than 64 tokens")
    assert "rows" not in warning


def test_many_samples_above_the_budget_are_not_all_listed():
    (warning,) = [w for w in warnings_for([9, 8] * 50, BatchLimits(max_tokens=5)) if "longer" in w]
    assert "(rows 0, 1, 2, 3, 4, ...)" in warning


@pytest.mark.parametrize("lengths", [[5, 5], [1, 2, 3, 4], [5, 5, 5, 1]])
def test_a_handful_of_samples_proves_nothing(lengths):
    assert warnings_for(lengths) == []


def test_a_histogram_has_no_order_to_warn_about():
    histogram = LengthHistogram.from_lengths(list(range(1, 50)))
    assert warnings_for(histogram) == []
    assert scan_lengths(histogram).warnings == ()


def test_read_lengths_warns_at_the_line_that_called_it():
    """It returns a bare array, so a silent failure would stay silent."""
    with pytest.warns(LengthwiseWarning, match="all 40 lengths are 512") as caught:
        read_lengths([512] * 40)
    assert caught[0].filename == __file__
    with pytest.warns(LengthwiseWarning, match="1 of 5 rows were left out; the first: row 2: null"):
        read_lengths([7, 3, None, 9, 4], on_bad="skip")
