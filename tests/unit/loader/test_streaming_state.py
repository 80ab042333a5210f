"""State: saved after every batch, loaded into a fresh batcher, the rest must be the same."""

import itertools
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from lengthwise.errors import ConfigError, PlanMismatchError
from support.streams import Sample, StatefulStream, batcher_of, numbers, run, samples_of

LENGTHS = [1 + (i * i * 7) % 31 for i in range(60)]
NUM_EPOCHS = 2
MODES = {
    "pool": {},
    "given": {"boundaries": [1, 6, 20, 33]},
    "learned": {"num_buckets": 3},
    "replay": {"state_samples": "replay"},
    "tokens": {"buffer_tokens": 150},
    "two_replicas": {"num_replicas": 2, "rank": 1, "accumulation_steps": 2},
    "dropped": {"oversize": "drop", "max_tokens": 29},
    "alone": {"oversize": "single", "max_tokens": 29},
    "alone_replayed": {"oversize": "single", "max_tokens": 29, "state_samples": "replay"},
}
SOURCES = {
    "list": lambda: samples_of(LENGTHS),
    "function": lambda: lambda: iter(samples_of(LENGTHS)),
    "epochs": lambda: lambda epoch: samples_of(LENGTHS[epoch:] + LENGTHS[:epoch]),
    "stateful": lambda: StatefulStream(LENGTHS, reshuffle=True),
    "loader": lambda: DataLoader(samples_of(LENGTHS), batch_size=None),
}


def settings(mode):
    return {"max_tokens": 64, "buffer_samples": 12, **MODES[mode]}


def flat(batcher, num_epochs, states=None):
    """The batches of the passes to come, up to epoch ``num_epochs``, as one list."""
    found = []
    while batcher.epoch < num_epochs:
        for batch in batcher:
            found.append(numbers(batch))
            if states is not None:
                states.append(pickle.dumps(batcher.state_dict()))
    return found


def disturb_global_generators():
    random.random()
    np.random.random()  # noqa: NPY002
    torch.rand(1)


@pytest.mark.filterwarnings("ignore:lengths have drifted")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", SOURCES)
def test_after_every_batch_of_every_epoch_a_loaded_state_yields_the_identical_rest(source, mode):
    """The reference run is never interrupted. States are pickled, as a checkpoint does.

    B32, B33, B34, B37: also in later epochs, where each epoch is again complete, with global
    generators drawn from in between.
    """
    states = []
    whole = flat(batcher_of(SOURCES[source](), **settings(mode)), NUM_EPOCHS, states)
    assert len(whole) == len(states) >= 10
    for taken, state in enumerate(states, start=1):
        disturb_global_generators()
        fresh = batcher_of(SOURCES[source](), **settings(mode))
        fresh.load_state_dict(pickle.loads(state))
        assert flat(fresh, NUM_EPOCHS) == whole[taken:]


@pytest.mark.parametrize("mode", ["pool", "replay", "two_replicas"])
@pytest.mark.parametrize("source", ["list", "stateful"])
def test_a_chain_of_resumes_is_the_uninterrupted_run(source, mode):
    """B32: three batches, save, resume, two more, save, resume: nothing is skipped or repeated."""
    whole = flat(batcher_of(SOURCES[source](), **settings(mode)), NUM_EPOCHS)
    batcher, found = batcher_of(SOURCES[source](), **settings(mode)), []
    for count in (3, 2, 1, 1, 4):
        found += [numbers(batch) for batch in itertools.islice(batcher, count)]
        state = batcher.state_dict()
        batcher = batcher_of(SOURCES[source](), **settings(mode))
        batcher.load_state_dict(state)
        # Asking for the state before the first batch gives the loaded one, and changes nothing.
        assert batcher.state_dict()["rest"] == state["rest"]
    assert found + flat(batcher, NUM_EPOCHS) == whole


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=50),
    st.integers(1, 20),
    st.sampled_from(["store", "replay"]),
    st.data(),
)
def test_a_state_of_any_stream_and_buffer_restores_the_rest(lengths, buffer, kind, data):
    options = {"max_tokens": 40, "buffer_samples": buffer, "state_samples": kind}
    states = []
    whole = flat(batcher_of(samples_of(lengths), **options), 1, states)
    taken = data.draw(st.integers(1, len(whole)))
    for source in (samples_of(lengths), StatefulStream(lengths)):
        fresh = batcher_of(source, **options)
        fresh.load_state_dict(pickle.loads(states[taken - 1]) | {})
        if isinstance(source, StatefulStream):
            # The state was saved over a list, which has none of its own: it is skipped.
            assert fresh.state_dict()["epoch"] == (1 if taken == len(whole) else 0)
        assert flat(fresh, 1) == whole[taken:]


@pytest.mark.parametrize("kind", ["store", "replay"])
def test_a_source_with_a_state_is_not_read_again_from_its_start(kind):
    """Stored samples: nothing is read twice. Replayed: from the last mark before the oldest."""
    lengths = [1 + i % 30 for i in range(4000)]
    source = StatefulStream(lengths)
    options = {"max_tokens": 64, "buffer_samples": 16, "state_samples": kind}
    batcher = batcher_of(source, **options)
    stream = iter(batcher)
    for _ in range(600):
        next(stream)
    state = batcher.state_dict()
    before = source.place
    assert before > 1500
    again = StatefulStream(lengths)
    fresh = batcher_of(again, **options)
    fresh.load_state_dict(state)
    next(iter(fresh))
    # One more batch of at most 64 samples is read; a replay begins at the oldest sample held, which
    # has waited for fewer than 16 + 16 buffers.
    assert again.num_made <= (64 if kind == "store" else 64 + 33 * 16)
    assert again.num_made < before / 2


def test_the_size_of_a_state_is_that_of_the_buffer():
    """It does not grow with what was read: after 10 and after 400 batches it is nearly the same."""
    batcher = batcher_of([1 + i % 30 for i in range(8000)], max_tokens=64, buffer_samples=32)
    sizes = [len(pickle.dumps(batcher.state_dict())) for _ in batcher]
    assert max(sizes[:-1]) < 1.5 * sizes[10]


def test_a_state_does_not_change_while_the_batcher_goes_on():
    """It holds copies: pickled at once or after the pass, it is the same."""
    batcher = batcher_of(LENGTHS, max_tokens=64, buffer_samples=12)
    stream = iter(batcher)
    next(stream)
    state = batcher.state_dict()
    before = pickle.dumps(state)
    rest = [numbers(batch) for batch in stream]
    assert pickle.dumps(state) == before
    batcher.load_state_dict(state)
    assert run(batcher) == rest


@pytest.mark.parametrize("mode", ["pool", "given", "alone"])
@pytest.mark.parametrize("after", [1, 4, 9])
@pytest.mark.parametrize("now", [1, 2, 3])
def test_a_replicated_state_goes_on_with_another_number_of_replicas(mode, after, now):
    """Four replicas take some steps; one to three others take all that is left, once each."""
    options = {**settings(mode), "buffer_samples": 16}
    ranks = [
        batcher_of(samples_of(LENGTHS), **options, rank=rank, num_replicas=4) for rank in range(4)
    ]
    streams = [iter(batcher) for batcher in ranks]
    seen = [numbers(next(stream)) for _ in range(min(after, 4)) for stream in streams]
    # Any rank's state will do: take another one for each.
    states = [batcher.state_dict() for batcher in ranks]
    counts = []
    for rank in range(now):
        fresh = batcher_of(samples_of(LENGTHS), **options, rank=rank, num_replicas=now)
        fresh.load_state_dict(states[rank])
        rest = run(fresh)
        counts.append(len(rest))
        seen += rest
    assert len(set(counts)) == 1
    assert sorted(i for batch in seen for i in batch) == list(range(len(LENGTHS)))


def test_a_loop_that_stops_early_begins_again_from_where_it_began():
    batcher = batcher_of(LENGTHS, max_tokens=64, buffer_samples=12)
    whole = run(batcher)
    batcher.set_epoch(0)
    first = numbers(next(iter(batcher)))
    assert first == whole[0]
    assert batcher.epoch == 0
    assert run(batcher) == whole
    # The same after a state was loaded.
    batcher.set_epoch(0)
    stream = iter(batcher)
    next(stream)
    state = batcher.state_dict()
    batcher.load_state_dict(state)
    assert numbers(next(iter(batcher))) == whole[1]
    assert run(batcher) == whole[1:]


def test_setting_the_epoch_that_comes_next_keeps_a_loaded_place_and_any_other_leaves_it():
    """Trainers call set_epoch before each loop, also right after a state was loaded."""
    batcher = batcher_of(LENGTHS, max_tokens=64, buffer_samples=12)
    epochs = [run(batcher), run(batcher)]
    batcher.set_epoch(1)
    stream = iter(batcher)
    next(stream)
    state = batcher.state_dict()
    batcher.load_state_dict(state)
    batcher.set_epoch(1)
    assert run(batcher) == epochs[1][1:]
    batcher.load_state_dict(state)
    batcher.set_epoch(0)
    assert run(batcher) == epochs[0]
    assert run(batcher) == epochs[1]


def test_setting_an_epoch_during_a_pass_counts_for_the_next_one():
    batcher = batcher_of(LENGTHS, max_tokens=64, buffer_samples=12)
    for count, _ in enumerate(batcher):
        if count == 2:
            batcher.set_epoch(5)
    assert batcher.epoch == 5


def test_a_stateful_source_begins_anew_when_its_epoch_is_read_again():
    """A loaded state must not stick to the source."""
    source = StatefulStream(LENGTHS)
    batcher = batcher_of(source, max_tokens=64, buffer_samples=12)
    whole = run(batcher)
    batcher.set_epoch(0)
    stream = iter(batcher)
    next(stream)
    batcher.load_state_dict(batcher.state_dict())
    assert run(batcher) == whole[1:]
    batcher.set_epoch(0)
    assert run(batcher) == whole


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_tokens": 65}, r"max_tokens \(64 then, 65 now\)"),
        ({"seed": 3}, r"seed \(0 then, 3 now\)"),
        ({"buffer_samples": 13}, "buffer_samples"),
        ({"boundaries": [0, 9, 40]}, r"boundaries \(None then, \[0, 9, 40\] now\)"),
        ({"sharding": "strided", "num_replicas": 1, "rank": 0}, "sharding"),
    ],
)
def test_a_state_of_other_settings_is_refused_by_name(change, named):
    state = batcher_of(LENGTHS, max_tokens=64, buffer_samples=12).state_dict()
    other = batcher_of(LENGTHS, **{"max_tokens": 64, "buffer_samples": 12, **change})
    with pytest.raises(PlanMismatchError, match=named):
        other.load_state_dict(state)


def test_what_is_no_state_of_a_batcher_is_refused():
    batcher = batcher_of(LENGTHS, max_tokens=64)
    for state in ({}, {"version": 99, "rest": None}, [1]):
        with pytest.raises(PlanMismatchError, match="no state of a StreamingBucketBatcher"):
            batcher.load_state_dict(state)


@pytest.mark.parametrize("kind", ["store", "replay"])
def test_a_stream_that_became_shorter_is_refused_on_resume(kind):
    options = {"max_tokens": 64, "buffer_samples": 12, "state_samples": kind}
    batcher = batcher_of(LENGTHS, **options)
    stream = iter(batcher)
    for _ in range(6):
        next(stream)
    fresh = batcher_of(LENGTHS[:5], **options)
    fresh.load_state_dict(batcher.state_dict())
    with pytest.raises(PlanMismatchError, match="now has only"):
        next(iter(fresh))


def test_another_stream_is_noticed_on_replay():
    """Lengths of the samples that are read again are compared with those saved."""
    options = {"max_tokens": 64, "buffer_samples": 12, "state_samples": "replay"}
    batcher = batcher_of(LENGTHS, **options)
    next(iter(batcher))
    fresh = batcher_of([1 + length for length in LENGTHS], **options)
    fresh.load_state_dict(batcher.state_dict())
    with pytest.raises(PlanMismatchError, match="another stream, or in another order"):
        next(iter(fresh))


def test_samples_that_a_policy_cut_are_cut_again_on_replay():
    def cut(sample, num_tokens):
        return Sample(sample.number, num_tokens)

    options = {
        "max_tokens": 20,
        "buffer_samples": 12,
        "state_samples": "replay",
        "oversize": "truncate",
        "truncate_fn": cut,
    }
    batcher = batcher_of(LENGTHS, **options)
    stream = iter(batcher)
    next(stream)
    fresh = batcher_of(LENGTHS, **options)
    fresh.load_state_dict(batcher.state_dict())
    assert list(fresh) == list(stream)


def test_replay_is_refused_where_samples_may_come_from_other_replicas():
    with pytest.raises(ConfigError, match="state_samples='store'"):
        batcher_of(LENGTHS, max_tokens=64, sharding="sharded", state_samples="replay")
