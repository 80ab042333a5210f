"""Boundaries as a value: what they must satisfy, and which bucket a length is in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.bucketing import assign_buckets, validate_boundaries, without_empty_buckets
from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import ConfigError


@pytest.mark.parametrize(
    ("boundaries", "words"),
    [
        ([], "at least two"),
        ([5], "at least two"),
        ([0, 10, 10, 30], "10 follows 10"),
        ([0, 20, 10, 30], "10 follows 20"),
        ([8, 16, 32], "begin with 0"),
        ([0, 20], "end with at least 21"),
        ([0.0, 30], "must be an integer"),
        ([-1, 30], "from 0"),
        ([True, 30], "must be an integer"),
    ],
)
def test_boundaries_that_leave_a_length_out_are_refused(boundaries, words):
    """Shortest 5, longest 20; buckets are half-open, so 20 needs a last boundary of 21."""
    with pytest.raises(ConfigError, match=words):
        validate_boundaries(boundaries, 5, 20)


def test_boundaries_come_back_as_plain_integers():
    edges = validate_boundaries(np.array([0, 7, 21]), 5, 20)
    assert edges == (0, 7, 21)
    assert all(type(edge) is int for edge in edges)


@given(st.lists(st.integers(1, 300), min_size=1), st.sets(st.integers(1, 300), max_size=8))
def test_a_length_is_in_the_bucket_that_holds_it(lengths, inner):
    """The definition: boundaries[k] <= length < boundaries[k + 1]."""
    edges = (0, *sorted(inner), 301)
    buckets = assign_buckets(lengths, edges)
    assert buckets.dtype == np.int32
    for length, k in zip(lengths, buckets.tolist(), strict=True):
        assert edges[k] <= length < edges[k + 1]


def test_assigning_refuses_a_length_that_no_bucket_holds():
    with pytest.raises(ConfigError, match="end with at least 51"):
        assign_buckets([10, 50], [0, 50])


def test_no_lengths_have_no_buckets():
    assert assign_buckets([], [0, 50]).tolist() == []


@pytest.mark.parametrize(
    ("boundaries", "kept", "removed"),
    [
        ((8, 16, 32), (8, 32), "[8, 16)"),
        ((0, 10, 20, 26, 32), (0, 26, 32), "[0, 10), [10, 20)"),
        ((0, 24, 26, 32), (0, 24, 32), "[24, 26)"),
        ((0, 32, 64), (0, 32), "[32, 64)"),
    ],
)
def test_an_empty_bucket_goes_to_the_one_above_it(boundaries, kept, removed):
    """Lengths 21 to 30 without 24 and 25; above the last full bucket the rest is cut off."""
    hist = LengthHistogram.from_lengths([21, 22, 23, 26, 27, 28, 29, 30])
    edges, notes = without_empty_buckets(boundaries, hist)
    assert edges == kept
    assert len(notes) == 1
    assert removed in notes[0]


def test_full_buckets_are_left_alone():
    hist = LengthHistogram.from_lengths([5, 15])
    assert without_empty_buckets((0, 10, 20), hist) == ((0, 10, 20), ())
