"""Histograms against sorted lists and Python's own integers."""

from collections import Counter
from fractions import Fraction
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.histogram import LengthHistogram, check_lengths, exact_dot, exact_sum
from lengthwise.errors import BadLengthError, DataError

LENGTHS = st.lists(
    st.integers(1, 40) | st.sampled_from([2**22 - 1, 2**22, 2**31, 2**53]), max_size=60
)
SOME_LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=60)
PARTS = st.lists(LENGTHS, max_size=5)


def of(lengths):
    return LengthHistogram.from_lengths(np.array(lengths, np.int64))


@given(LENGTHS)
def test_counts_are_those_of_a_counter(lengths):
    """Both ways of counting (a dense table, and sorting above 2**22) must agree with Counter."""
    hist = of(lengths)
    expected = sorted(Counter(lengths).items())
    assert list(zip(hist.lengths.tolist(), hist.counts.tolist(), strict=True)) == expected
    assert hist.num_samples == len(lengths)
    assert hist.num_tokens == sum(lengths)
    assert len(hist) == len(expected)
    assert hist.to_lengths().tolist() == sorted(lengths)


@given(LENGTHS, LENGTHS, LENGTHS)
def test_merging_is_associative_and_commutative_and_empty_changes_nothing(a, b, c):
    """So parts of a data set may be counted apart, in any order, on any machine."""
    x, y, z, empty = of(a), of(b), of(c), of([])
    assert (x + y) + z == x + (y + z) == (z + x) + y == of(a + b + c)
    assert x + y == y + x
    assert x + empty == empty + x == x


@given(PARTS)
def test_merging_many_is_counting_all(parts):
    """No parts, empty parts and equal parts included."""
    assert LengthHistogram.merge(map(of, parts)) == of([n for part in parts for n in part])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), max_size=20))
def test_pairs_of_length_and_count_add_up_in_any_order(pairs):
    """Repeated lengths add up; a count of zero leaves no trace."""
    hist = LengthHistogram.from_counts([n for n, _ in pairs], [count for _, count in pairs])
    assert hist == of([n for n, count in pairs for _ in range(count)])


@given(SOME_LENGTHS, st.integers(0, 60), st.integers(1, 60))
def test_a_quantile_is_the_shortest_length_with_enough_samples(lengths, part, whole):
    """By definition, in fractions: the share of samples no longer is at least q = part / whole."""
    q = min(part, whole) / whole
    exact = Fraction(min(part, whole), whole)
    expected = next(
        length
        for length in sorted(set(lengths))
        if Fraction(sum(n <= length for n in lengths), len(lengths)) >= exact
    )
    assert of(lengths).quantile(q) == expected


@pytest.mark.parametrize("total", [10**2, 10**6, 10**9, 10**12])
def test_quantiles_do_not_slip_by_a_rank_in_large_data(total):
    """7 % of the samples have length 1, exactly: rounding must not ask for one sample more."""
    first = total // 100 * 7
    hist = LengthHistogram.from_counts([1, 2], [first, total - first])
    assert hist.quantile(0.07) == 1
    assert hist.quantile(0.0700001) == 2
    assert (hist.quantile(0), hist.quantile(1)) == (1, 2)


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_a_quantile_outside_zero_to_one_is_an_error(q):
    """NaN compares false with everything, so it must not slip through."""
    with pytest.raises(DataError, match=r"in \[0, 1\]"):
        of([1]).quantile(q)


@given(SOME_LENGTHS)
def test_moments_are_those_of_the_statistics_module(lengths):
    """The standard library's mean and population standard deviation."""
    hist = of(lengths)
    assert (hist.shortest, hist.longest) == (min(lengths), max(lengths))
    assert hist.mean == pytest.approx(fmean(lengths), rel=1e-15)
    assert hist.std == pytest.approx(pstdev(lengths), rel=1e-12, abs=1e-12)


@given(SOME_LENGTHS, st.integers(0, 60), st.integers(0, 60))
def test_between_is_half_open(lengths, lo, hi):
    """lo belongs to it and hi does not; an empty range is empty."""
    assert of(lengths).between(lo, hi) == of([n for n in lengths if lo <= n < hi])


@given(SOME_LENGTHS, st.integers(1, 20))
def test_bins_hold_every_sample_once_and_a_sparkline_has_their_number(lengths, num_bins):
    """Lengths are placed by exact fractions; equal widths from the shortest to past the longest."""
    hist = of(lengths)
    width = Fraction(hist.longest + 1 - hist.shortest, num_bins)
    bins = hist.binned(num_bins)
    assert bins.sum() == len(lengths)
    exact = Counter(int((n - hist.shortest) / width) for n in lengths)
    on_an_edge = any((n - hist.shortest) % width == 0 for n in lengths)
    if not on_an_edge:  # there, one rounding of the edge may decide
        assert bins.tolist() == [exact[i] for i in range(num_bins)]
    line = hist.sparkline(num_bins)
    assert len(line) == num_bins
    assert [char == " " for char in line] == [count == 0 for count in bins.tolist()]


def test_token_totals_are_exact_beyond_int64():
    """2**53 tokens times 2**12 samples is 2**65: no machine integer holds it."""
    hist = LengthHistogram.from_counts([2**53 - 1, 2**53], [2**12, 3])
    assert hist.num_tokens == (2**53 - 1) * 2**12 + 3 * 2**53


@given(st.lists(st.integers(0, 2**62), max_size=20), st.integers(1, 3))
def test_exact_sums_are_pythons(values, times):
    """Up to the largest values that arrays of plans hold; sums pass int64."""
    array = np.array(values * times, np.int64)
    assert exact_sum(array) == sum(values) * times
    weights = np.arange(1, array.size + 1)
    expected = sum(value * weight for weight, value in enumerate(values * times, 1))
    assert exact_dot(array, weights) == expected


def test_a_histogram_is_a_value():
    """Equal by content, not hashable, read-only, and no copy of the caller's arrays."""
    lengths, counts = np.array([3, 5]), np.array([1, 2])
    hist = LengthHistogram(lengths, counts)
    lengths[0] = 4
    assert hist == of([3, 5, 5])
    assert hist != of([3, 5])
    assert hist != "a histogram"
    with pytest.raises(ValueError, match="read-only"):
        hist.counts[0] = 9
    with pytest.raises(TypeError):
        hash(hist)
    with pytest.raises(TypeError):
        hist + 1


@pytest.mark.parametrize(
    ("lengths", "counts", "message"),
    [
        ([1, 2], [1], "of one shape"),
        ([2, 1], [1, 1], "strictly increasing"),
        ([1, 1], [1, 1], "strictly increasing"),
        ([0, 1], [1, 1], "at least 1"),
        ([1, 2], [1, 0], "counts must be at least 1"),
        ([1.5], [1], "must be integers"),
    ],
)
def test_a_histogram_cannot_exist_invalid(lengths, counts, message):
    """Everything behind it relies on sorted distinct lengths and positive counts."""
    with pytest.raises(DataError, match=message):
        LengthHistogram(np.array(lengths), np.array(counts))


def test_pairs_that_do_not_belong_together_are_refused():
    """A negative count would silently cancel others."""
    with pytest.raises(DataError, match="2 lengths but 1 counts"):
        LengthHistogram.from_counts([1, 2], [1])
    with pytest.raises(DataError, match=r"count at position 1 is negative \(-3\)"):
        LengthHistogram.from_counts([1, 2], [1, -3])


@pytest.mark.parametrize(
    "ask",
    [
        lambda hist: hist.shortest,
        lambda hist: hist.longest,
        lambda hist: hist.mean,
        lambda hist: hist.quantile(0.5),
        lambda hist: hist.sparkline(),
    ],
)
def test_an_empty_histogram_says_that_it_is_empty(ask):
    """Not an IndexError or a division by zero from inside."""
    with pytest.raises(DataError, match="no samples"):
        ask(of([]))


def test_an_empty_histogram_still_counts():
    """It is the neutral element, so its totals are zeros."""
    assert (of([]).num_samples, of([]).num_tokens, len(of([]))) == (0, 0, 0)


@pytest.mark.parametrize(
    "array",
    [
        [1, 2, 3],
        np.array([1, 2, 3], np.uint8),
        np.array([1, 2, 3], np.uint64),
        np.array([1.0, 2.0, 3.0], np.float32),
        range(1, 4),
        (1, 2, 3),
    ],
    ids=repr,
)
def test_whole_numbers_of_any_type_are_lengths(array):
    """Columns come in every dtype; arithmetic is int64 from here on."""
    values = check_lengths(array)
    assert values.dtype == np.int64
    assert values.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([4, 0, 2], r"position 1 is 0; .* \(1 of 3 are not\)"),
        ([4, -1, -2], r"position 1 is -1; .* \(2 of 3 are not\)"),
        ([4, 12.5], r"position 1 is 12.5;"),
        ([4, float("nan")], r"position 1 is nan;"),
        ([float("inf"), 1], r"position 0 is inf;"),
        (np.array([5, 2**63 + 5], np.uint64), r"position 1 is 9223372036854775813;"),
        ([2**53 + 1], r"position 0 is 9007199254740993;"),
        ([True, False], r"must be integers, got an array of bool; the first is True"),
        (["12"], r"must be integers, got an array of <U2; the first is '12'"),
        ([None, 3], r"must be integers, got an array of object; the first is None"),
        ([[1, 2]], r"one-dimensional, got shape \(1, 2\)"),
        (7, r"one-dimensional, got shape \(\)"),
    ],
)
def test_what_is_no_length_is_named_with_its_position(array, message):
    """The first offender, its value as a person would write it, and how many there are."""
    with pytest.raises(BadLengthError, match=message):
        check_lengths(array)
