"""Replicas that read streams of their own end together, without loss and without a hang."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise import BatchLimits
from lengthwise.errors import ConfigError, LengthwiseWarning, PlanError, PlanMismatchError
from lengthwise.loader.streaming.peers import level
from support import twins_streaming as twin
from support.streams import Sample, batcher_of, numbers
from support.thread_peers import on_threads

pytestmark = pytest.mark.filterwarnings("ignore:the last .* samples of the stream are left out")


def shard_samples(shards):
    """Samples numbered over all shards, so that each can be told from all others."""
    found, number = [], 0
    for lengths in shards:
        found.append([Sample(number + i, length) for i, length in enumerate(lengths)])
        number += len(lengths)
    return found


def make(shards, rank, peers, **options):
    batcher = batcher_of(
        shards[rank],
        **{"sharding": "sharded", **options},
        rank=rank,
        num_replicas=len(shards),
    )
    batcher._peers = peers
    return batcher


def run_shards(shards, num_epochs=1, **options):
    """Each replica's batches (as numbers), its stats, and the meeting."""
    shards = shard_samples(shards)

    def one(rank, peers):
        batcher = make(shards, rank, peers, **options)
        batches = []
        for _ in range(num_epochs):
            batches.append([])
            for batch in batcher:
                batches[-1].append(numbers(batch))
                # Samples of others included, the buffer keeps to its bounds.
                config, buffer = batcher.config, batcher._pass._feed.buffer
                assert len(buffer) <= config.buffer_samples
                assert buffer.num_tokens <= (config.buffer_tokens or 2**60)
        return batches, batcher.stats

    results, meeting = on_threads(len(shards), one)
    return [batches for batches, _ in results], [stats for _, stats in results], meeting


LIMITS = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(32, 100),
        "max_batch_size": st.none() | st.integers(1, 8),
        "batch_size_multiple_of": st.sampled_from([1, 1, 2]),
    }
)
SHARD = st.one_of(
    st.lists(st.integers(1, 32), max_size=40),
    st.builds(lambda n, count: [n] * count, st.integers(1, 32), st.integers(0, 60)),
    st.lists(st.integers(1, 3), max_size=30).map(lambda x: [*x, 32, 32]),
)


@given(st.lists(SHARD, min_size=2, max_size=4), LIMITS, st.data())
def test_unequal_shards_end_together_and_every_sample_comes_once(shards, limits, data):
    """B22, whatever the shards: also empty ones, and ones that end long before the others.

    Fewer samples than replicas are left out, and counted.
    """
    num_replicas = len(shards)
    least = 2 * num_replicas
    tokens = data.draw(st.none() | st.integers(0, 100))
    options = {
        **limits,
        "buffer_samples": data.draw(st.integers(least, 30)),
        "buffer_tokens": None if tokens is None else least * limits["max_tokens"] + tokens,
        "sync_every": data.draw(st.integers(1, 6)),
    }
    total = sum(map(len, shards))
    if total < num_replicas:
        with pytest.raises(PlanError):
            run_shards(shards, **options)
        return
    epochs, stats, _ = run_shards(shards, **options)
    found = [batches for (batches,) in epochs]
    lengths = [length for lengths in shards for length in lengths]
    assert len({len(batches) for batches in found}) == 1
    seen = [i for batches in found for batch in batches for i in batch]
    lost = sum(s.num_dropped_samples for s in stats)
    assert len(set(seen)) == len(seen)
    assert len(seen) + lost == total
    assert lost < num_replicas
    assert sum(s.num_read for s in stats) == total
    rules = BatchLimits(**limits)
    for batches in found:
        assert all(twin.legal([lengths[i] for i in batch], rules) for batch in batches)


@given(st.lists(SHARD, min_size=2, max_size=3), st.integers(1, 5))
def test_with_drop_last_all_stop_when_the_first_runs_out(shards, sync_every):
    """Nothing is handed over; every sample read was yielded or counted as left out."""
    options = {"max_tokens": 64, "buffer_samples": 8, "sync_every": sync_every, "drop_last": True}
    if not all(shards):
        with pytest.raises(PlanError):
            run_shards(shards, **options)
        return
    epochs, stats, meeting = run_shards(shards, **options)
    found = [batches for (batches,) in epochs]
    assert meeting.num_handed_over == 0
    assert len({len(batches) for batches in found}) == 1
    for batches, one in zip(found, stats, strict=True):
        seen = [i for batch in batches for i in batch]
        assert len(set(seen)) == len(seen)
        assert one.num_read == len(seen) + one.num_dropped_samples


def test_a_replica_without_data_is_supplied_by_the_other():
    """All 400 samples lie on rank 1; each replica trains on half of them, in full batches."""
    epochs, stats, meeting = run_shards([[], [10] * 400], max_tokens=100, buffer_samples=40)
    counts = [len(batches) for (batches,) in epochs]
    assert counts[0] == counts[1] <= 400 / 10 / 2 + 2
    samples = [s.num_samples for s in stats]
    assert sum(samples) == 400
    assert abs(samples[0] - samples[1]) <= 20
    assert meeting.num_handed_over == samples[0]


def test_equal_shards_hand_nothing_over_before_their_end():
    """Streams that end within a window of each other need no samples of others, but to level."""
    _, stats, meeting = run_shards([[10] * 400, [10] * 400], max_tokens=100, buffer_samples=40)
    assert meeting.num_handed_over <= 40
    assert [s.num_samples for s in stats] == [400, 400]


def test_replicas_agree_once_in_so_many_steps():
    """40 steps of equal streams: 5 agreements at most with a window of 10, and two at the end."""
    shards = [[10] * 400, [10] * 400]
    _, _, often = run_shards(shards, max_tokens=100, buffer_samples=40, sync_every=1)
    _, _, rarely = run_shards(shards, max_tokens=100, buffer_samples=40, sync_every=10)
    assert rarely.num_gathers <= 5 + 3
    assert often.num_gathers >= 36


def test_a_strided_stream_is_shared_without_a_shard_of_its_own():
    """Both replicas read all 101 samples and keep every second; one has one more."""
    stream = [1 + i % 20 for i in range(101)]

    def one(rank, peers):
        batcher = batcher_of(
            stream, max_tokens=64, buffer_samples=8, sharding="strided", rank=rank, num_replicas=2
        )
        batcher._peers = peers
        return [numbers(batch) for batch in batcher], batcher.stats

    (first, second), _ = on_threads(2, one)
    assert len(first[0]) == len(second[0])
    assert sorted(i for batches, _ in (first, second) for batch in batches for i in batch) == list(
        range(101)
    )
    assert first[1].num_read == second[1].num_read == 101


@pytest.mark.filterwarnings("ignore:lengths have drifted")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop_last": True},
        {"num_buckets": 2},
        {"oversize": "single", "max_tokens": 25},
        {"buffer_tokens": 300, "accumulation_steps": 3},
    ],
)
def test_states_of_all_replicas_restore_the_rest_after_every_step(options):
    """Unequal shards, so states also fall into windows, hand-overs and the agreed end; 2 epochs."""
    shards = shard_samples([[1 + i % 30 for i in range(70)], [1 + 3 * i % 20 for i in range(25)]])
    options = {"max_tokens": 64, "buffer_samples": 10, "sync_every": 3, **options}

    def whole(rank, peers):
        batcher, found, states = make(shards, rank, peers, **options), [], []
        for _ in range(2):
            for batch in batcher:
                found.append(numbers(batch))
                states.append(pickle.dumps(batcher.state_dict()))
        return found, states

    expected, _ = on_threads(2, whole)
    assert len(expected[0][0]) > 10
    for taken in range(1, len(expected[0][0]) + 1):

        def resumed(rank, peers, taken=taken):
            batcher, found = make(shards, rank, peers, **options), []
            batcher.load_state_dict(pickle.loads(expected[rank][1][taken - 1]))
            while batcher.epoch < 2:
                found += [numbers(batch) for batch in batcher]
            return found

        rests, _ = on_threads(2, resumed)
        assert rests == [found[taken:] for found, _ in expected]


def test_states_of_different_steps_are_found_out_instead_of_hanging():
    shards = shard_samples([[10] * 100, [10] * 100])
    options = {"max_tokens": 40, "buffer_samples": 10, "sync_every": 2}

    def states(rank, peers):
        batcher = make(shards, rank, peers, **options)
        return [batcher.state_dict() for _ in batcher]

    (first, second), _ = on_threads(2, states)

    def resumed(rank, peers):
        batcher = make(shards, rank, peers, **options)
        batcher.load_state_dict((first[3], second[5])[rank])
        return list(batcher)

    with pytest.raises(PlanMismatchError, match="rank 0 has done 6 steps of epoch 0; rank 1 has"):
        on_threads(2, resumed)


def test_a_state_of_another_replica_is_refused():
    """The buffers differ, so samples would be lost and repeated."""
    state = batcher_of([1], max_tokens=9, sharding="sharded", rank=0, num_replicas=2).state_dict()
    for place in ({"rank": 1, "num_replicas": 2}, {"rank": 0, "num_replicas": 3}):
        other = batcher_of([1], max_tokens=9, sharding="sharded", **place)
        with pytest.raises(PlanMismatchError, match=r"rank|num_replicas \(2 then, 3 now\)"):
            other.load_state_dict(state)


def test_streams_of_one_s_own_need_torch_distributed():
    batcher = batcher_of([1], max_tokens=9, sharding="sharded", rank=0, num_replicas=2)
    with pytest.raises(ConfigError, match="sharding='replicated', which needs no agreement"):
        iter(batcher)


def test_samples_left_over_are_told_on_the_replica_that_has_them():
    """Five samples that each fill a batch: two steps, one sample is left over."""
    with pytest.warns(LengthwiseWarning, match="last 1 samples"):
        _, stats, _ = run_shards([[60] * 3, [60] * 2], max_tokens=100, buffer_samples=8)
    assert sum(s.num_dropped_samples for s in stats) == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6))
def test_levelling_moves_as_little_as_needed_and_leaves_counts_within_one(rows):
    """With room for all: the least number moved is what lies above the targets."""
    held = [have for have, _ in rows]
    moves = level(held, held, [1000] * len(rows))
    after = list(held)
    for move in moves:
        assert move.num_samples > 0
        assert move.source != move.target
        after[move.source] -= move.num_samples
        after[move.target] += move.num_samples
    assert max(after) - min(after) <= 1
    assert sum(after) == sum(held)
    assert sum(move.num_samples for move in moves) == sum(
        max(0, have - now) for have, now in zip(held, after, strict=True)
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
        min_size=1,
        max_size=6,
    )
)
def test_levelling_keeps_to_what_can_be_moved_and_to_the_room_there_is(rows):
    held, movable, room = (list(column) for column in zip(*rows, strict=True))
    movable = [min(pair) for pair in zip(held, movable, strict=True)]
    moves = level(held, movable, room)
    for rank in range(len(rows)):
        assert sum(m.num_samples for m in moves if m.source == rank) <= movable[rank]
        assert sum(m.num_samples for m in moves if m.target == rank) <= room[rank]
