"""Lengths of samples, the oversize policies, learned boundaries and drift."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise import BatchLimits, LengthHistogram, optimize_boundaries
from lengthwise.errors import (
    BadLengthError,
    ConfigError,
    DataError,
    LengthwiseWarning,
    OversizeError,
    PlanError,
)
from lengthwise.loader.streaming import StreamingBucketBatcher
from lengthwise.loader.streaming.learning import distance
from support.streams import Sample, batcher_of, numbers, run


@pytest.mark.parametrize(
    "samples",
    [
        [{"tokens": [1, 2, 3]}, {"tokens": [4]}],
        [{"tokens": np.arange(3)}, {"tokens": np.arange(1)}],
        [{"tokens": torch.arange(3)}, {"tokens": torch.arange(1)}],
        [{"tokens": 3}, {"tokens": 1}],
        [{"tokens": np.int32(3)}, {"tokens": torch.tensor(1)}],
        [{"tokens": 3.0}, {"tokens": np.float32(1.0)}],
    ],
    ids=["lists", "arrays", "tensors", "numbers", "scalars", "whole floats"],
)
def test_a_field_may_hold_the_tokens_or_their_number(samples):
    """Three and one tokens: 4 real ones, and 2 samples of 3 when padded."""
    batcher = StreamingBucketBatcher(samples, "tokens", max_tokens=6)
    assert len(list(batcher)) == 1
    assert (batcher.stats.real_tokens, batcher.stats.padded_tokens) == (4, 6)


@pytest.mark.parametrize("length", [0, -3, 2.5, None, True, "7", float("nan"), np.float64("inf")])
def test_what_is_no_length_stops_the_stream_with_its_number(length):
    """B06, B07: not a whole number of at least 1."""
    batcher = StreamingBucketBatcher([5, length], lambda sample: sample, max_tokens=10)
    with pytest.raises(BadLengthError, match="sample 1 of the stream"):
        list(batcher)


def test_a_field_of_text_or_a_missing_field_is_told_with_the_way_out():
    text = StreamingBucketBatcher([{"text": "a b c"}], "text", max_tokens=10)
    with pytest.raises(DataError, match=r"holds text.*give length= a function"):
        list(text)
    missing = StreamingBucketBatcher([{"text": "a", "id": 1}], "tokens", max_tokens=10)
    with pytest.raises(DataError, match="no field 'tokens'; it has: text, id"):
        list(missing)


def test_an_oversize_sample_stops_the_stream_by_default():
    """B14: the message names the sample, both lengths and the policies."""
    with pytest.raises(OversizeError, match=r"sample 1 of the stream has 201.*\(200.*'single'"):
        list(batcher_of([10, 201], max_tokens=200))


def test_oversize_samples_may_be_dropped_and_are_counted():
    batcher = batcher_of([10, 201, 20, 300], max_tokens=200, oversize="drop")
    assert sorted(i for batch in run(batcher) for i in batch) == [0, 2]
    stats = batcher.stats
    assert (stats.num_oversize, stats.num_dropped_oversize, stats.num_samples) == (2, 2, 2)


def test_dropping_everything_is_an_error():
    with pytest.raises(PlanError, match="all 2 samples of the stream are too long"):
        list(batcher_of([201, 300], max_tokens=200, oversize="drop"))


def test_oversize_samples_may_be_cut_and_are_counted():
    """To the budget, in whole multiples of the padding: 200 is rounded down to 192."""
    asked = []

    def cut(sample, num_tokens):
        asked.append(num_tokens)
        return Sample(sample.number, num_tokens)

    batcher = batcher_of(
        [10, 201], max_tokens=200, pad_to_multiple_of=64, oversize="truncate", truncate_fn=cut
    )
    lengths = [sample.length for batch in batcher for sample in batch]
    assert (sorted(lengths), asked, batcher.stats.num_truncated) == ([10, 192], [192], 1)


def test_a_cut_that_is_not_short_enough_is_an_error():
    batcher = batcher_of(
        [201], max_tokens=200, oversize="truncate", truncate_fn=lambda sample, _: sample
    )
    with pytest.raises(DataError, match="left sample 0 of the stream at 201 tokens"):
        list(batcher)


@pytest.mark.parametrize("options", [{}, {"boundaries": [0, 50, 201]}, {"num_buckets": 2}])
def test_oversize_samples_may_be_batches_of_their_own(options):
    """The only batches above the budget, of one sample each; their padding is counted too."""
    lengths = [300, 10, 201, 20, 150, 400]
    batcher = batcher_of(lengths, max_tokens=200, oversize="single", **options)
    batches = run(batcher)
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    assert all(batch in batches for batch in ([0], [2], [5]))
    assert batcher.stats.num_oversize == 3
    padded = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    assert batcher.stats.padded_tokens == sum(padded)
    assert all(cost <= 200 for cost, batch in zip(padded, batches, strict=True) if len(batch) > 1)


def test_a_stream_of_oversize_samples_alone_is_shared_by_replicas_without_being_buffered():
    """Seven batches of one: three steps of two, and one sample that does not divide."""
    held = []
    found = []
    for rank in (0, 1):
        batcher = batcher_of(
            [300] * 7, max_tokens=200, oversize="single", rank=rank, num_replicas=2
        )
        with pytest.warns(LengthwiseWarning, match="last 1 samples"):
            batches = [(numbers(batch), batcher._pass._feed.num_held) for batch in batcher]
        found += [i for batch, _ in batches for i in batch]
        held += [num_held for _, num_held in batches]
    assert max(held) <= 2
    assert len(set(found)) == len(found) == 6


@given(st.lists(st.integers(1, 60), min_size=1), st.lists(st.integers(1, 60), min_size=1))
def test_the_distance_is_the_largest_gap_between_the_cumulative_shares(first, second):
    """By definition, at every length there is."""
    expected = max(
        abs(sum(x <= at for x in first) / len(first) - sum(x <= at for x in second) / len(second))
        for at in range(1, 61)
    )
    got = distance(LengthHistogram.from_lengths(first), LengthHistogram.from_lengths(second))
    assert got == pytest.approx(expected, abs=1e-12)


def test_boundaries_are_learned_from_the_first_samples_in_their_order():
    """The best ones for the first 20 lengths, open to the longest that may come."""
    lengths = [1 + (11 * i) % 40 for i in range(20)] + [41, 50, 60] * 5 + [5] * 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LengthwiseWarning)  # of the drift that follows
        batcher = batcher_of(
            lengths, max_tokens=120, buffer_samples=30, num_buckets=4, warmup_samples=20
        )
        batches = run(batcher)
    best = optimize_boundaries(
        LengthHistogram.from_lengths(lengths[:20]), BatchLimits(max_tokens=120), num_buckets=4
    )
    assert batcher.boundaries == (*best.boundaries[:-1], 121)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    inner = best.boundaries[1:-1]
    for batch in batches:
        assert len({sum(edge <= lengths[i] for edge in inner) for i in batch}) == 1


def test_a_stream_that_drifts_is_warned_about_once_a_window():
    """100 learned, then 100 alike, 200 longer ones (two warnings), and 50 that fill no window."""
    alike = [1 + (7 * i) % 20 for i in range(100)]
    lengths = alike + alike + [length + 15 for length in alike] * 2 + [80] * 50
    batcher = batcher_of(lengths, max_tokens=200, buffer_samples=100, num_buckets=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(batcher)
    messages = [str(item.message) for item in caught]
    assert len(messages) == 2
    assert all(issubclass(item.category, LengthwiseWarning) for item in caught)
    assert "0.75 away from the first 100" in messages[0]
    assert "Shuffle the stream" in messages[0]


@pytest.mark.parametrize(("window", "warned"), [(200, True), (20, False)])
def test_a_small_drift_is_told_where_the_window_is_large_enough_to_be_sure(window, warned):
    """A quarter of the range further up is a distance of 0.25.

    1.95 * sqrt(2 / 200) is 0.195, below it; 1.95 * sqrt(2 / 20) is 0.62, above it.
    """
    alike = [1 + (7 * i) % 20 for i in range(window)]
    lengths = alike + [length + 5 for length in alike]
    batcher = batcher_of(lengths, max_tokens=200, buffer_samples=window, num_buckets=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(batcher)
    assert len(caught) == warned


def test_a_shuffled_stream_does_not_drift():
    """20 windows of 200 from one distribution; by chance one in a thousand would be reported."""
    lengths = (1 + np.random.default_rng(0).integers(0, 60, 4200)).tolist()
    list(batcher_of(lengths, max_tokens=200, buffer_samples=200, num_buckets=3))


def test_a_sorted_stream_is_warned_about():
    """The head of a sorted stream says nothing about its end."""
    batcher = batcher_of(list(range(1, 301)), max_tokens=400, buffer_samples=50, num_buckets=4)
    with pytest.warns(LengthwiseWarning, match="drifted since the boundaries were learned"):
        list(batcher)


def test_lengths_outside_given_boundaries_are_told_once_and_join_the_nearest_bucket():
    """Two above and one below; the budget holds all the same."""
    lengths = [2, 20, 60, 70, 30, 15]
    batcher = batcher_of(lengths, max_tokens=100, boundaries=[10, 25, 50])
    with pytest.warns(LengthwiseWarning, match="sample 0 .* 2 tokens, outside") as caught:
        batches = run(batcher)
    assert len(caught) == 1
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 100 for batch in batches)


def test_batches_padded_to_boundaries_hold_as_many_samples_as_fit_at_the_top():
    """Boundaries 11 and 21: tops 10 and 20, so at most 10 and 5 samples of 100 tokens."""
    lengths = [1 + i % 20 for i in range(200)]
    batcher = batcher_of(lengths, max_tokens=100, boundaries=[1, 11, 21], pad_to_boundary=True)
    batches = run(batcher)
    tops = [10 if max(lengths[i] for i in batch) <= 10 else 20 for batch in batches]
    assert all(len(batch) * top <= 100 for batch, top in zip(batches, tops, strict=True))
    assert {len(b) for b, top in zip(batches, tops, strict=True) if top == 10} == {10}
    assert batcher.stats.padded_tokens == sum(
        len(batch) * top for batch, top in zip(batches, tops, strict=True)
    )


def test_a_sample_above_the_top_to_which_all_is_padded_is_oversize():
    batcher = batcher_of(
        [5, 25], max_tokens=100, boundaries=[1, 11, 21], pad_to_boundary=True, oversize="drop"
    )
    assert run(batcher) == [[0]]
    assert batcher.stats.num_dropped_oversize == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_token": 9}, "unknown setting max_token"),
        ({}, "give max_tokens"),
        ({"max_tokens": 9, "buffer_samples": 0}, "buffer_samples"),
        ({"max_tokens": 9, "buffer_tokens": 8}, "buffer_tokens must be at least 9"),
        ({"max_tokens": 9, "num_replicas": 4, "rank": 0, "buffer_samples": 7}, "at least 8 for 4"),
        ({"max_tokens": 9, "boundaries": [1, 5], "num_buckets": 2}, "not both"),
        ({"max_tokens": 9, "boundaries": [5, 5]}, "strictly rising"),
        ({"max_tokens": 9, "warmup_samples": 5}, "belongs to num_buckets"),
        ({"max_tokens": 9, "num_buckets": 2, "warmup_samples": 5000}, "at most buffer_samples"),
        ({"max_tokens": 9, "num_buckets": 2, "pad_to_boundary": True}, r"needs boundaries=\[...\]"),
        ({"max_tokens": 9, "boundaries": [1, 50], "pad_to_boundary": True}, "lower the last"),
        ({"max_tokens": 9, "oversize": "truncate"}, "truncate_fn belong together"),
        ({"max_tokens": 9, "truncate_fn": print}, "truncate_fn belong together"),
        ({"max_tokens": 9, "oversize": "cut"}, "oversize must be one of"),
        ({"max_tokens": 9, "sharding": "split"}, "sharding must be one of"),
        ({"max_tokens": 9, "state_samples": "none"}, "state_samples must be one of"),
        ({"max_tokens": 9, "sync_every": 0}, "sync_every"),
        ({"max_tokens": 9, "seed": 1.5}, "seed"),
    ],
)
def test_a_setting_that_cannot_work_fails_at_construction(options, match):
    with pytest.raises(ConfigError, match=match):
        batcher_of([1, 2], **options)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (iter([1]), "can be read only once: give a function"),
        ((x for x in [1]), "can be read only once"),
        (7, "must be an iterable or a function"),
        (lambda path: [path], "needs path"),
    ],
)
def test_a_source_that_cannot_be_read_every_epoch_fails_at_construction(source, match):
    with pytest.raises(ConfigError, match=match):
        StreamingBucketBatcher(source, len, max_tokens=9)


def test_a_length_that_is_neither_name_nor_function_fails_at_construction():
    with pytest.raises(ConfigError, match="length must be a field's name or a function"):
        StreamingBucketBatcher([1], 5, max_tokens=9)
