"""Which buffered samples make a batch: against definitions that try every batch."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lengthwise import BatchLimits
from lengthwise.loader.streaming.buffer import Group, LengthBuffer, fit_count, num_even_steps
from lengthwise.loader.streaming.forming import BucketRule, Draw, NeighbourRule
from support import twins_streaming as twin

LIMITS = st.builds(
    BatchLimits,
    max_tokens=st.integers(24, 120),
    max_batch_size=st.none() | st.integers(1, 12),
    pad_to_multiple_of=st.sampled_from([1, 1, 4, 8]),
    batch_size_multiple_of=st.sampled_from([1, 1, 2, 4]),
)
LENGTHS = st.lists(st.integers(1, 24), min_size=1, max_size=40).map(sorted)
KEYS = st.integers(0, 2**64 - 1)


@st.composite
def draws(draw, size):
    num_strata = draw(st.integers(1, 6))
    pinned = draw(st.none() | st.integers(0, size - 1))
    return Draw(draw(KEYS), draw(st.integers(0, num_strata - 1)), num_strata, pinned)


@given(LENGTHS, LIMITS, st.integers(1, 40), st.data())
def test_a_pool_takes_the_tighter_of_two_random_full_runs_of_neighbours(
    lengths, limits, most, data
):
    """The twin tries every size and computes spans from its own runs."""
    d = data.draw(draws(len(lengths)))
    got = NeighbourRule(limits).choose(lengths, d, most)
    expected = twin.neighbours(lengths, d.key, d.stratum, d.num_strata, limits, most, d.pinned)
    assert list(got) == expected
    assert len(got) <= most
    assert twin.legal([lengths[i] for i in got], limits)


@given(LENGTHS, LIMITS, st.integers(1, 40), st.data())
def test_a_run_that_is_not_full_is_the_fullest_at_the_bottom(lengths, limits, most, data):
    """Brute force over all legal runs: none that begins at the bottom and fits holds more."""
    place = data.draw(st.integers(0, len(lengths) - 1))
    got = NeighbourRule(limits).run_at(lengths, place, most)
    full = twin.whole(
        min(twin.size_allowed(lengths[place], limits), most), limits.batch_size_multiple_of
    )
    if got.start == 0 and len(got) < full:
        bottom = [stop for start, stop in twin.runs(lengths, limits, most) if start == 0]
        assert got.stop == max(bottom)


@given(LENGTHS, LIMITS, KEYS)
def test_the_rest_of_a_pool_is_tiled_from_the_longest_down(lengths, limits, key):
    """Each tile is as large as is legal for its longest sample, by trying all sizes."""
    got = [list(part) for part in NeighbourRule(limits).partition(lengths, key)]
    assert got == twin.tiled(lengths, limits)


BOUNDARIES = st.sets(st.integers(1, 30), min_size=2, max_size=6).map(lambda s: tuple(sorted(s)))


def bucket_of(length, boundaries):
    """Half-open buckets; the first and the last are open to the outside."""
    return sum(edge <= length for edge in boundaries[1:-1])


@given(LENGTHS, LIMITS, BOUNDARIES, st.integers(1, 40), st.data())
def test_a_bucket_batch_is_legal_of_one_bucket_and_holds_the_pinned_sample(
    lengths, limits, boundaries, most, data
):
    d = data.draw(draws(len(lengths)))
    got = BucketRule(limits, boundaries).choose(lengths, d, most)
    assert got == sorted(set(got))
    assert 1 <= len(got) <= most
    assert twin.legal([lengths[i] for i in got], limits)
    assert len({bucket_of(lengths[i], boundaries) for i in got}) == 1
    if d.pinned is not None:
        assert d.pinned in got


def test_a_bucket_that_fills_a_batch_is_preferred():
    """20 samples of 10 tokens fill batches of 2; 15 of one token do not fill a batch of 20.

    By samples alone the second bucket would be drawn in 43 % of cases, so in 215 of 500. It is
    drawn only where eight draws in a row hit it: 0.43**8 is 0.1 %.
    """
    rule, lengths = BucketRule(BatchLimits(max_tokens=20), (1, 5, 11)), [1] * 15 + [10] * 20
    chosen = [rule.choose(lengths, Draw(key), 35) for key in range(500)]
    assert sum(lengths[places[0]] == 1 for places in chosen) <= 5


def test_where_no_bucket_fills_a_batch_the_one_nearest_to_it_is_taken():
    """15 of 20 samples are three quarters of a batch, 1 of 2 is half of one."""
    rule, lengths = BucketRule(BatchLimits(max_tokens=20), (1, 5, 11)), [1] * 15 + [10]
    assert all(rule.choose(lengths, Draw(key), 35) == list(range(15)) for key in range(50))


@given(LENGTHS, LIMITS, BOUNDARIES, KEYS)
def test_the_rest_of_buckets_is_partitioned_into_legal_batches_of_one_bucket(
    lengths, limits, boundaries, key
):
    parts = BucketRule(limits, boundaries).partition(lengths, key)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    for part in parts:
        assert twin.legal([lengths[i] for i in part], limits)
        assert len({bucket_of(lengths[i], boundaries) for i in part}) == 1


def test_members_of_a_bucket_are_drawn_evenly():
    """Ten samples, batches of two: each is expected in 400 of 2,000; 5 sigma are 90."""
    rule = BucketRule(BatchLimits(max_tokens=20), (1, 11))
    seen = Counter()
    for key in range(2000):
        seen.update(rule.choose([10] * 10, Draw(key * 7919), 10))
    assert set(seen) == set(range(10))
    assert all(abs(count - 400) < 90 for count in seen.values())


@given(LENGTHS, BOUNDARIES)
def test_padding_to_boundaries_counts_the_top_of_the_bucket(lengths, boundaries):
    """For lengths inside the boundaries: the first boundary above, minus one."""
    rule = BucketRule(BatchLimits(max_tokens=1000), boundaries, pad_to_boundary=True)
    for length in lengths:
        if length < boundaries[-1]:
            top = min(edge for edge in boundaries[1:] if edge > length) - 1
            assert rule.padded_length(length) == top


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99)), max_size=30), st.data())
def test_the_buffer_keeps_samples_by_length_and_gives_back_exactly_what_is_taken(items, data):
    """A plain list, sorted anew after each arrival (sorting is stable), says what lies where."""
    buffer, expected = LengthBuffer(), []
    for number, (length, sample) in enumerate(items):
        buffer.add(length, number, sample)
        expected = sorted([*expected, (length, number, sample)], key=lambda row: row[0])
    places = sorted(data.draw(st.sets(st.integers(0, max(0, len(items) - 1)))) if items else [])
    consecutive = bool(places) and places == list(range(places[0], places[-1] + 1))
    group = buffer.take(range(places[0], places[-1] + 1) if consecutive else places)
    rows = list(zip(group.lengths, group.ids, group.samples, strict=True))
    assert rows == [expected[i] for i in places]
    left = [row for i, row in enumerate(expected) if i not in places]
    assert list(zip(buffer.lengths, buffer.ids, buffer.samples, strict=True)) == left
    assert buffer.num_tokens == sum(row[0] for row in left)


def groups_of(sizes):
    return [
        Group([1] * size, [(i, j) for j in range(size)], [None] * size)
        for i, size in enumerate(sizes)
    ]


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 5), st.sampled_from([1, 2, 4]))
def test_the_last_batches_are_fitted_to_the_replicas_with_least_loss(sizes, num_replicas, multiple):
    """All samples stay if that many batches can be cut from them, else fewer than the replicas go.

    That is the least: with fewer steps than batches need, or more than samples allow, more go.
    """
    sizes = [twin.whole(size, multiple) for size in sizes]
    limits = BatchLimits(max_tokens=100, batch_size_multiple_of=multiple)
    groups = groups_of(sizes)
    steps = num_even_steps(groups, num_replicas)
    kept, gone = fit_count(groups, steps * num_replicas, limits)
    assert len(kept) == steps * num_replicas
    before = sorted(i for group in groups for i in group.ids)
    assert sorted(i for group in [*kept, *gone] for i in group.ids) == before
    assert all(twin.whole(len(group), multiple) == len(group) >= 1 for group in kept)
    needed = -(-len(sizes) // num_replicas) * num_replicas
    lost = sum(map(len, gone))
    assert lost == 0 if needed <= sum(sizes) else lost < num_replicas
