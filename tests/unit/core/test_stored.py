"""Lengths where they lie: read in parts, never copied, the same from any kind of storage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core import stored
from lengthwise.core.config import BatchingConfig
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner, build_plan
from lengthwise.core.stored import StoredLengths, count_lengths
from lengthwise.errors import BadLengthError, OversizeError, PlanError
from support.planning import value_of

FIXED = BatchingConfig(limits=BatchLimits(400, 16), boundaries=(0, 30, 80), batch_sizing="fixed")
PARTS = st.lists(st.lists(st.integers(1, 60_000), max_size=30), min_size=1, max_size=5)


def arrays(parts, dtype=np.uint16):
    return [np.array(part, dtype) for part in parts]


@given(PARTS, st.sampled_from([None, 1, 700]), st.data())
def test_shards_read_like_one_list(parts, most, data):
    """Ranges, places, masks and all of it: as of the lists joined, cut where they are cut."""
    joined = [value if most is None else min(value, most) for part in parts for value in part]
    lengths = StoredLengths.of(arrays(parts))
    if most is not None:
        lengths = lengths.at_most(most)
    assert (len(lengths), lengths.size) == (len(joined), len(joined))
    assert lengths.shard_sizes.tolist() == [len(part) for part in parts]
    assert np.asarray(lengths).tolist() == joined
    start, stop = data.draw(st.integers(0, len(joined))), data.draw(st.integers(0, len(joined) + 3))
    assert lengths.read(start, stop).tolist() == joined[start:stop]
    assert lengths[start:stop].tolist() == joined[start:stop]
    assert lengths[::-2].tolist() == joined[::-2]
    mask = data.draw(st.lists(st.booleans(), min_size=len(joined), max_size=len(joined)))
    kept = [value for value, keep in zip(joined, mask, strict=True) if keep]
    assert lengths[np.array(mask, bool)].tolist() == kept
    if joined:
        places = data.draw(st.lists(st.integers(-len(joined), len(joined) - 1), max_size=9))
        assert lengths[np.array(places, int)].tolist() == [joined[place] for place in places]
        assert lengths[places[0] if places else 0] == joined[places[0] if places else 0]
    for found in (np.asarray(lengths), lengths.read(0, 5), lengths[::2]):
        assert found.dtype == np.int64


def test_a_sample_that_is_not_there_is_an_index_error():
    """Not an entry of another shard, and not one from the end."""
    lengths = StoredLengths.of(arrays([[3, 4], [5]]))
    for wrong in (3, -4, [0, 3]):
        with pytest.raises(IndexError, match="outside of 3"):
            lengths[wrong]


@given(PARTS.filter(any), st.integers(1, 3))
def test_parts_are_counted_as_the_whole(parts, num_threads):
    """The same exact histogram, however small the parts that are read."""
    most, stored.PART = stored.PART, 7
    try:
        found = count_lengths(StoredLengths.of(arrays(parts)), num_threads)
    finally:
        stored.PART = most
    assert found == LengthHistogram.from_lengths([value for part in parts for value in part])


@pytest.mark.parametrize("wrong", [0, -7])
def test_a_bad_length_is_named_by_its_place_among_all_shards(wrong):
    """The third of the second shard is sample 4; two of six are bad."""
    shards = arrays([[3, 4], [5, 6, wrong, wrong]], np.int32)
    with pytest.raises(BadLengthError, match=rf"at position 4 is {wrong}; .*\(2 of 6 are not"):
        Planner(shards, FIXED)


def test_a_length_beyond_all_integers_that_are_exact_is_named_as_it_was_given():
    """2**64 - 1 is -1 in int64, and so is found, but it was not given as -1."""
    with pytest.raises(BadLengthError, match=f"at position 1 is {2**64 - 1}"):
        Planner(np.array([5, 2**64 - 1], np.uint64), FIXED)


def test_a_sample_that_is_too_long_is_named_by_its_place_among_all_shards():
    """As with one array."""
    with pytest.raises(OversizeError, match="row 3 \\(500 tokens\\)"):
        Planner(arrays([[3, 4], [5, 500]]), FIXED)


@pytest.mark.parametrize("policy", ["drop", "truncate", "single"])
@pytest.mark.parametrize("kind", ["pooled", "windowed", "fixed"])
def test_every_storage_gives_the_same_plan(tmp_path, policy, kind):
    """A list, an int64 array, narrow ones, memory-mapped ones, shards: plans are values."""
    lengths = [1 + 37 * i % 79 for i in range(500)] + [900, 401]
    limits = BatchLimits(400, 16)
    fields = {"boundaries": (0, 30, 80, 1000), "batch_sizing": "fixed"} if kind == "fixed" else {}
    if kind == "windowed":
        fields = {"strategy": kind, "window_size": 40}
    config = BatchingConfig(limits=limits, oversize=policy, **fields)
    np.save(tmp_path / "lengths.npy", np.array(lengths, np.uint16))
    mapped = np.load(tmp_path / "lengths.npy", mmap_mode="r")
    plans = [
        build_plan(given, config, num_replicas=3, epoch=2)
        for given in (
            lengths,
            np.array(lengths, np.int64),
            np.array(lengths, np.int32),
            mapped,
            [mapped[:200], mapped[200:201], mapped[201:]],
            (part for part in (mapped[:300], mapped[300:])),
        )
    ]
    first = value_of(plans[0])
    assert all(value_of(plan) == first for plan in plans)


def test_a_planner_gives_int64_lengths_whatever_it_was_given():
    """Two bytes wide they would overflow at the first sum; nothing is copied all the same."""
    given_array = np.array([60_000, 9, 60_000], np.uint16)
    planner = Planner(given_array, BatchingConfig(limits=BatchLimits(10**6)))
    assert np.shares_memory(planner.prepared.lengths.shards[0], given_array)
    assert planner.lengths[:].sum() == 120_009
    assert planner.lengths[0] + planner.lengths[2] == 120_000
    wide = given_array.astype(np.int64)
    assert Planner(wide, BatchingConfig(limits=BatchLimits(10**6))).lengths is not None
    assert np.shares_memory(Planner(wide, FIXED_WIDE).lengths, wide)


FIXED_WIDE = BatchingConfig(limits=BatchLimits(10**6), strategy="random", batch_sizing="fixed")


@pytest.mark.parametrize("config", [FIXED, BatchingConfig(limits=BatchLimits(400))])
def test_more_samples_than_an_index_can_name_are_refused_before_they_are_read(config):
    """A view of one length, 2**32 times: reading it would take a minute, and does not begin."""
    lengths = np.broadcast_to(np.array([5], np.uint16), 2**32)
    with pytest.raises(PlanError, match=r"got 4,294,967,296 samples\. Plan the data set in parts"):
        Planner(lengths, config)
