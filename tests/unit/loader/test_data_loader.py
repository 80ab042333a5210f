"""The loader whose state counts what training took, with and without workers."""

import os
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lengthwise.errors import ConfigError, PlanMismatchError
from lengthwise.loader import ResumableDataLoader
from lengthwise.loader.testing import check_resume
from support.loader_runs import expected_batches, heavy_tail, make, take

LENGTHS = heavy_tail(60)
SMALL = {"max_tokens": 400, "max_batch_size": 16, "strategy": "random"}
"""Random batches come in another number every epoch."""


class Rows(Dataset):
    """Sample i is a tensor that says i, as long as its length."""

    def __init__(self, lengths=LENGTHS):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.full((int(self.lengths[index]),), index)


def indices(samples):
    """A batch as the list of its samples' numbers; at module level, since workers may pickle it."""
    return [int(sample[0]) for sample in samples]


def make_loader(lengths=LENGTHS, *, rank=0, num_replicas=1, plan_ahead=False, **options):
    sampler = make(lengths, rank=rank, num_replicas=num_replicas, plan_ahead=plan_ahead, **SMALL)
    return ResumableDataLoader(Rows(lengths), sampler, collate_fn=indices, **options)


def epoch_of(epoch, lengths=LENGTHS):
    config = make(lengths, **SMALL).config
    return expected_batches(lengths, config, epoch, 1)[0]


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}],
    ids=["no workers", "two workers", "persistent workers"],
)
def test_the_state_before_every_batch_resumes_exactly(options):
    """Saved inside the loop and between epochs, restored in a fresh loader each time."""
    num_epochs = 1 if options else 2
    checked = check_resume(lambda: make_loader(**options), num_epochs=num_epochs)
    assert checked == sum(len(epoch_of(e)) + 1 for e in range(num_epochs))


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
def test_b36_after_a_stop_at_the_fifth_batch_the_sixth_is_next():
    """Four workers with two batches each fetch eight ahead; a count of those would skip them."""
    lengths = heavy_tail(300)
    whole = epoch_of(0, lengths)
    loader = make_loader(lengths, num_workers=4, prefetch_factor=2)
    batches = iter(loader)
    assert take(batches, 5) == whole[:5]
    state = loader.state_dict()
    assert loader.batch_sampler.state_dict()["step"] == 13  # what was fetched
    assert state["step"] == 5
    del batches
    fresh = make_loader(lengths)
    fresh.load_state_dict(state)
    assert len(fresh) == len(whole) - 5
    assert list(fresh) == whole[5:]


def test_sampler_and_loader_load_each_others_states():
    loader = make_loader()
    take(iter(loader), 3)
    sampler = make(LENGTHS, **SMALL)
    sampler.load_state_dict(loader.state_dict())
    assert list(sampler) == epoch_of(0)[3:]
    sampler = make(LENGTHS, **SMALL)
    take(iter(sampler), 2)
    loader.load_state_dict(sampler.state_dict())
    assert list(loader) == epoch_of(0)[2:]
    with pytest.raises(PlanMismatchError, match="number of samples"):
        make_loader(heavy_tail(61)).load_state_dict(sampler.state_dict())


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1, "persistent_workers": True}],
    ids=["no workers", "persistent worker"],
)
def test_epochs_advance_or_are_set_and_len_is_what_the_loop_gets(options):
    """Constant inside a loop that workers run ahead of, the next epoch's right after it."""
    loader = make_loader(**options)
    assert len({len(epoch_of(epoch)) for epoch in range(5)}) > 1
    for epoch in (0, 1, 2, 4):
        if epoch == 4:
            loader.set_epoch(4)
        expected = epoch_of(epoch)
        assert len(loader) == len(expected)
        for step, batch in enumerate(loader):
            assert batch == expected[step]
            assert len(loader) == len(expected)
        assert step == len(expected) - 1
        assert loader.state_dict()["epoch"] == epoch + 1


def test_an_epoch_that_is_set_inside_a_loop_is_what_the_state_says_from_then_on():
    """The batches of the loop that goes on belong to the old epoch and do not count."""
    loader = make_loader()
    batches = iter(loader)
    take(batches, 3)
    loader.set_epoch(2)
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (2, 0)
    rest = list(batches)
    assert rest == epoch_of(0)[3:]
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (2, 0)
    assert list(loader) == epoch_of(2)


def test_a_loop_that_stops_early_can_be_saved_and_a_new_loop_begins_again():
    loader = make_loader()
    for step, _ in enumerate(loader):
        if step == 3:
            break
    assert loader.state_dict()["step"] == 4
    iterator = iter(loader)
    assert loader.state_dict()["step"] == 0
    assert list(iterator) == epoch_of(0)


def test_the_samplers_own_iteration_does_not_confuse_the_loaders_count():
    # Looking at the sampler directly makes its iteration the latest; the loader has taken none.
    loader = make_loader()
    take(iter(loader), 3)
    take(iter(loader.batch_sampler), 2)
    assert loader.state_dict()["step"] == 0


def test_states_are_refused_or_loaded_in_the_middle_of_a_loop_with_live_workers():
    """A persistent worker still has batches of the abandoned loop; none of them may come out."""
    loader = make_loader(num_workers=1, persistent_workers=True)
    batches = iter(loader)
    take(batches, 2)
    state = loader.state_dict()
    take(batches, 3)
    loader.load_state_dict(state)
    assert list(loader) == epoch_of(0)[2:]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_are_forked_while_no_planning_thread_runs():
    """A fork in the middle of another thread's work can leave locks held for ever in the child."""
    seen = []
    recording = [True]

    def record():
        if recording:
            seen.extend(t.name for t in threading.enumerate() if t.name.startswith("lengthwise"))
            seen.append("fork")

    os.register_at_fork(before=record)
    loader = make_loader(heavy_tail(3000), plan_ahead=True, num_workers=1)
    for epoch in range(3):
        loader.set_epoch(epoch)
        take(iter(loader), 2)
    recording.clear()
    assert seen == ["fork"] * 3


@pytest.mark.slow
def test_spawned_workers_resume_exactly_too():
    options = {"num_workers": 2, "multiprocessing_context": "spawn"}
    loader = make_loader(**options)
    batches = iter(loader)
    take(batches, 4)
    fresh = make_loader(**options)
    fresh.load_state_dict(loader.state_dict())
    del batches
    assert list(fresh) == epoch_of(0)[4:]


def test_a_data_set_of_another_size_than_the_samplers_lengths_is_refused():
    """B02: lengths of another object than the one the loader indexes."""
    with pytest.raises(ConfigError, match=r"has 59 samples, the sampler was made from 60 lengths"):
        ResumableDataLoader(Rows(LENGTHS[1:]), make(LENGTHS))


def test_wrong_use_fails_when_the_loader_is_made():
    with pytest.raises(ConfigError, match="must be a BucketBatchSampler, got list"):
        ResumableDataLoader(Rows(), [[0, 1]])
    with pytest.raises(ConfigError, match="in_order=False"):
        ResumableDataLoader(Rows(), make(LENGTHS), num_workers=1, in_order=False)

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([1])

    with pytest.raises(ValueError, match="IterableDataset"):  # torch's own words
        ResumableDataLoader(Stream(), make(LENGTHS))


def test_it_is_a_data_loader_like_any_other():
    loader = make_loader(num_workers=0, pin_memory=False)
    assert isinstance(loader, DataLoader)
    assert loader.batch_size is None
    assert list(loader) == list(
        DataLoader(Rows(), batch_sampler=make(LENGTHS, **SMALL), collate_fn=indices)
    )
