"""Streams inside DataLoaders: workers, epochs, state, other libraries' streams."""

import functools
import warnings

import datasets
import datasets.distributed
import pytest
import torch
import torchdata.nodes
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from lengthwise.errors import ConfigError
from lengthwise.loader.streaming import StreamingBucketBatcher
from lengthwise.loader.testing import check_resume
from support.streams import StatefulStream, batcher_of, numbers, run, samples_of

# torchdata 0.11 calls something that torch 2.13 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

LENGTHS = [1 + (i * i * 7) % 31 for i in range(60)]
OPTIONS = {"max_tokens": 64, "buffer_samples": 12}


def loader(batcher, kind=DataLoader, **options):
    return kind(batcher, batch_size=None, collate_fn=numbers, **options)


@pytest.fixture(scope="module")
def epochs():
    """Three uninterrupted epochs without a DataLoader."""
    batcher = batcher_of(LENGTHS, **OPTIONS)
    return [run(batcher) for _ in range(3)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1},
        {"num_workers": 1, "persistent_workers": True},
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
            marks=pytest.mark.slow,  # a new interpreter that imports torch
        ),
    ],
    ids=["none", "one", "persistent", "spawned"],
)
def test_epochs_advance_by_themselves_with_any_kind_of_worker(options, epochs):
    """B30: nobody calls set_epoch; the worker's copy of the batcher tells the original."""
    batcher = batcher_of(LENGTHS, **OPTIONS)
    data = loader(batcher, **options)
    assert [list(data) for _ in range(3)] == epochs
    assert batcher.epoch == 3


def test_set_epoch_reaches_a_persistent_worker(epochs):
    batcher = batcher_of(LENGTHS, **OPTIONS)
    data = loader(batcher, num_workers=1, persistent_workers=True)
    found = []
    for epoch in (2, 0):
        batcher.set_epoch(epoch)
        found.append(list(data))
    assert found == [epochs[2], epochs[0]]


def test_a_loaded_state_reaches_a_worker_and_the_next_epoch_is_complete(epochs):
    """B34: the skip is not repeated."""
    first = batcher_of(LENGTHS, **OPTIONS)
    stream = iter(first)
    for _ in range(4):
        next(stream)
    batcher = batcher_of(LENGTHS, **OPTIONS)
    batcher.load_state_dict(first.state_dict())
    data = loader(batcher, num_workers=1)
    assert [list(data) for _ in range(2)] == [epochs[0][4:], epochs[1]]


def test_a_state_that_a_worker_has_run_ahead_of_is_refused():
    """B36: the worker has prefetched; only it knows, and StatefulDataLoader asks it."""
    batcher = batcher_of(LENGTHS, **OPTIONS)
    data = iter(loader(batcher, num_workers=1))
    next(data)
    with pytest.raises(ConfigError, match="StatefulDataLoader"):
        batcher.state_dict()
    list(data)
    with pytest.raises(ConfigError, match="ahead of the training loop"):
        batcher.state_dict()
    batcher.set_epoch(1)
    assert batcher.state_dict()["epoch"] == 1


def test_two_workers_are_refused_with_the_way_out():
    """Each would read the whole stream and yield every sample again."""
    data = iter(loader(batcher_of(LENGTHS, **OPTIONS), num_workers=2))
    with pytest.raises(ConfigError, match=r"num_workers=2: each worker would.*many workers below"):
        next(data)
    data._shutdown_workers()  # left to the garbage collector, it takes torch 5 s a worker


def test_a_worker_cannot_ask_other_replicas():
    batcher = batcher_of(LENGTHS, **OPTIONS, sharding="sharded", rank=0, num_replicas=2)
    data = iter(loader(batcher, num_workers=1))
    with pytest.raises(ConfigError, match="use num_workers=0, or sharding='replicated'"):
        next(data)
    data._shutdown_workers()


def test_many_workers_below_feed_one_buffer():
    """The way out of the message above: the source is a DataLoader with two workers."""
    source = DataLoader(samples_of(LENGTHS), batch_size=None, num_workers=2)
    batches = run(batcher_of(source, **OPTIONS))
    assert sorted(i for batch in batches for i in batch) == list(range(60))


@pytest.mark.parametrize("kind", ["store", "replay"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stateful_loader_resumes_after_every_batch(kind, num_workers, epochs):
    """B36: with a worker that prefetches, the state is that of the batch the loop has taken."""
    whole = epochs[0] + epochs[1]
    states, found = [], []
    options = {"kind": StatefulDataLoader, "num_workers": num_workers}
    data = loader(batcher_of(LENGTHS, **OPTIONS, state_samples=kind), **options)
    for _ in range(2):
        for batch in data:
            found.append(batch)
            states.append(data.state_dict())
    assert found == whole
    places = range(1, len(whole)) if num_workers == 0 else (1, 5, len(epochs[0]) - 1, 17)
    for taken in places:
        fresh = loader(batcher_of(LENGTHS, **OPTIONS, state_samples=kind), **options)
        fresh.load_state_dict(states[taken - 1])
        rest = list(fresh)
        if taken < len(epochs[0]):
            rest += list(fresh)
        assert rest == whole[taken:]


def test_a_stateful_loader_below_goes_on_by_its_own_state():
    """The source's state is kept inside the batcher's."""

    def make():
        source = StatefulDataLoader(samples_of(LENGTHS), batch_size=None, num_workers=0)
        return batcher_of(source, **OPTIONS)

    batcher, states = make(), []
    whole = []
    for batch in batcher:
        whole.append(numbers(batch))
        states.append(batcher.state_dict())
    assert states[2]["rest"]["reader"]["source"] is not None
    for taken in range(1, len(whole)):
        fresh = make()
        fresh.load_state_dict(states[taken - 1])
        assert run(fresh) == whole[taken:]


def hugging_face(shuffled):
    rows = {"number": list(range(60)), "length": LENGTHS}
    stream = datasets.Dataset.from_dict(rows).to_iterable_dataset(num_shards=4)
    return stream.shuffle(seed=3, buffer_size=10) if shuffled else stream


@pytest.mark.parametrize("shuffled", [False, True], ids=["plain", "shuffled"])
@pytest.mark.parametrize("kind", ["store", "replay"])
def test_a_hugging_face_stream_resumes_after_every_batch(shuffled, kind):
    """Also one with a shuffle buffer, whose own state loses what that buffer holds."""

    def make():
        return StreamingBucketBatcher(
            hugging_face(shuffled), "length", **OPTIONS, state_samples=kind
        )

    def ids(batch):
        return [row["number"] for row in batch]

    batcher, whole, states = make(), [], []
    for _ in range(2):
        for batch in batcher:
            whole.append(ids(batch))
            states.append(batcher.state_dict())
    num_first = sum(state["epoch"] == 0 for state in states) + 1
    first, second = whole[:num_first], whole[num_first:]
    assert sorted(i for b in first for i in b) == sorted(i for b in second for i in b)
    assert sorted(i for b in first for i in b) == list(range(60))
    assert (states[2]["rest"]["reader"]["source"] is None) == (shuffled or kind == "replay")
    for taken in range(1, len(whole)):
        fresh = make()
        fresh.load_state_dict(states[taken - 1])
        rest = [ids(batch) for batch in fresh]
        if taken < num_first:
            rest += [ids(batch) for batch in fresh]
        assert rest == whole[taken:]


def test_a_hugging_face_stream_forgets_a_loaded_state():
    """The library would begin at it whenever the same epoch is read again."""
    batcher = StreamingBucketBatcher(hugging_face(shuffled=False), "length", **OPTIONS)
    whole = list(batcher)
    batcher.set_epoch(0)
    stream = iter(batcher)
    next(stream)
    batcher.load_state_dict(batcher.state_dict())
    assert list(batcher) == whole[1:]
    batcher.set_epoch(0)
    assert list(batcher) == whole


@pytest.mark.parametrize("sharding", ["replicated", "strided"])
def test_one_part_of_a_hugging_face_stream_is_refused_where_all_of_it_is_needed(sharding):
    """Each replica would deal out another part as if it were the whole."""
    part = datasets.distributed.split_dataset_by_node(
        hugging_face(shuffled=False), rank=0, world_size=2
    )
    options = {**OPTIONS, "sharding": sharding, "rank": 0, "num_replicas": 2}
    with pytest.raises(ConfigError, match="use sharding='sharded'"):
        iter(StreamingBucketBatcher(part, "length", **options))


@pytest.mark.parametrize("options", [{}, {"boundaries": [1, 6, 20, 33]}, {"rank": 1}])
def test_the_harness_for_loaders_finds_nothing_wrong(options):
    """The same check that samplers and loaders of plans have to pass; also without a worker."""
    if "rank" in options:
        options = {**options, "num_replicas": 2}
    assert check_resume(lambda: batcher_of(LENGTHS, **OPTIONS, **options)) > 10


def test_torchdata_nodes_are_a_source_if_they_do_not_restart_by_themselves():
    """A node is read once and a Loader restarts at its end: both are told at construction."""

    def node():
        return torchdata.nodes.IterableWrapper(samples_of(LENGTHS))

    with pytest.raises(ConfigError, match="restart_on_stop_iteration=False"):
        batcher_of(node(), **OPTIONS)
    with pytest.raises(ConfigError, match="begins anew by itself"):
        batcher_of(torchdata.nodes.Loader(node()), **OPTIONS)
    make = functools.partial(torchdata.nodes.Loader, restart_on_stop_iteration=False)
    batcher, states = batcher_of(make(node()), **OPTIONS), []
    whole = []
    for batch in batcher:
        whole.append(numbers(batch))
        states.append(batcher.state_dict())
    for taken in range(1, len(whole)):
        fresh = batcher_of(make(node()), **OPTIONS)
        fresh.load_state_dict(states[taken - 1])
        assert run(fresh) == whole[taken:]


def test_there_is_no_length_but_a_way_out_and_trainers_that_try_it_go_on():
    """B27: a TypeError, as Python expects of things without one; list() and bool() work."""
    batcher = batcher_of(LENGTHS, **OPTIONS)
    with pytest.raises(TypeError, match="max_steps"):
        len(batcher)
    with pytest.raises(TypeError, match="max_steps"):
        len(loader(batcher))
    assert batcher
    assert len(list(batcher)) > 1


def test_a_collate_function_is_applied_to_each_batch(epochs):
    assert list(batcher_of(LENGTHS, **OPTIONS, collate_fn=numbers)) == epochs[0]


def test_nothing_depends_on_or_changes_torch_s_generator(epochs):
    torch.manual_seed(5)
    expected = torch.get_rng_state()
    assert run(batcher_of(LENGTHS, **OPTIONS)) == epochs[0]
    assert torch.equal(torch.get_rng_state(), expected)


def test_an_error_of_the_source_reaches_the_loop():
    """It is neither swallowed nor taken for the end of the stream."""

    def broken():
        yield from samples_of(LENGTHS[:40])
        raise OSError("disk gone")

    with warnings.catch_warnings(), pytest.raises(OSError, match="disk gone"):
        list(batcher_of(broken, **OPTIONS))


def test_the_epoch_reaches_the_source():
    source = StatefulStream(LENGTHS)
    batcher = batcher_of(source, **OPTIONS)
    seen = []
    for _ in range(3):
        list(batcher)
        seen.append(source.epoch)
    assert seen == [0, 1, 2]
