"""Accelerate in one process: what is refused, every place it can save, and skipping."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from lengthwise.errors import ConfigError
from lengthwise.integrations.accelerate import prepare_loader
from lengthwise.loader import ResumableDataLoader
from lengthwise.loader.testing import check_resume
from support.loader_runs import heavy_tail, make, take

pytestmark = pytest.mark.slow
accelerate = pytest.importorskip("accelerate")

LENGTHS = heavy_tail(60)
DATA = list(range(60))


@pytest.fixture(autouse=True)
def forget_settings():
    """Accelerate keeps them in the process."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def accelerator(**options):
    return accelerate.Accelerator(cpu=True, **options)


def loader(num_workers=0, **options):
    sampler = make(LENGTHS, strategy="random", max_batch_size=8, **options)
    return ResumableDataLoader(DATA, sampler, collate_fn=torch.tensor, num_workers=num_workers)


def lists(batches):
    return [batch.tolist() for batch in batches]


def epochs_of(number):
    plain = loader()
    return [lists(plain) for _ in range(number)]


@pytest.mark.parametrize("setting", ["split_batches", "dispatch_batches"])
def test_settings_that_take_batches_apart_are_refused(setting):
    """Half of a batch on each process breaks the plan; and shapes differ, so they cannot be cut."""
    config = accelerate.DataLoaderConfiguration(**{setting: True})
    with pytest.raises(ConfigError, match=f"{setting}=True .* DataLoaderConfiguration"):
        prepare_loader(accelerator(dataloader_config=config), loader())


@pytest.mark.parametrize("even_batches", [True, False])
def test_even_batches_changes_nothing(even_batches):
    """B25: it repeats batches or gives ranks unequal numbers, where Accelerate deals them."""
    config = accelerate.DataLoaderConfiguration(even_batches=even_batches)
    prepared = prepare_loader(accelerator(dataloader_config=config), loader())
    assert lists(prepared) == epochs_of(1)[0]


def test_accumulation_must_be_that_of_the_plan():
    """The order of batches is made for optimiser steps of so many."""
    with pytest.raises(ConfigError, match="make the sampler with accumulation_steps=4"):
        prepare_loader(accelerator(gradient_accumulation_steps=4), loader())


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_replicas_must_fit_the_processes(num_replicas):
    """One replica on two processes: both would train on all samples. Three: some are nobody's."""
    two = SimpleNamespace(num_processes=2, gradient_accumulation_steps=1)
    with pytest.raises(ConfigError, match=f"deals to {num_replicas} replicas, Accelerate has 2"):
        prepare_loader(two, loader(num_replicas=num_replicas))


def test_accelerate_cannot_deal_dealt_batches_again():
    """B25: each of two processes would get half of its half, without a word."""
    from accelerate.data_loader import prepare_data_loader

    dealt = DataLoader(DATA, batch_sampler=make(LENGTHS, num_replicas=2))
    with pytest.raises(ConfigError, match="prepare_loader"):
        prepare_data_loader(dealt, num_processes=2, process_index=0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_resumes_from_every_place_of_two_epochs(num_workers):
    """B33, B34, B36: Accelerate fetches a batch ahead, workers fetch more; no place moves."""
    with_state = accelerator()
    checked = check_resume(lambda: prepare_loader(with_state, loader(num_workers)), num_epochs=2)
    assert checked == sum(map(len, epochs_of(2))) + 2


def test_a_loop_that_stops_early_leaves_the_place_where_it_stopped():
    """Not at the batch that was fetched ahead: that one was never trained on."""
    first, _ = epochs_of(2)
    prepared = prepare_loader(accelerator(), loader())
    assert lists(take(iter(prepared), 3)) == first[:3]
    restored = prepare_loader(accelerator(), loader())
    restored.load_state_dict(prepared.state_dict())
    assert lists(restored) == first[3:]


def test_set_epoch_on_the_prepared_loader_reaches_the_sampler():
    """B30; and a place that was loaded in another epoch is given up for it."""
    zero, one, two = epochs_of(3)
    prepared = prepare_loader(accelerator(), loader())
    prepared.set_epoch(2)
    assert lists(prepared) == two
    prepared.set_epoch(0)
    assert lists(take(iter(prepared), 2)) == zero[:2]
    prepared.load_state_dict(prepared.state_dict())
    prepared.set_epoch(1)
    assert prepared.state_dict()["epoch"] == 1
    assert lists(prepared) == one


def test_skipping_finds_the_epoch_at_its_first_step_with_a_state_loaded_or_without():
    """B33, B34: the skip is not added to the loaded place, and not repeated in the next epoch."""
    _, one, two = epochs_of(3)
    saved = prepare_loader(accelerator(), loader())
    saved.set_epoch(1)
    take(iter(saved), 4)
    for use_state in (True, False):
        prepared = prepare_loader(accelerator(), loader())
        prepared.load_state_dict(saved.state_dict()) if use_state else prepared.set_epoch(1)
        skipping = accelerate.skip_first_batches(prepared, 4)
        assert len(skipping) == len(one) - 4
        assert lists(skipping) == one[4:]
        assert prepared.state_dict()["epoch"] == 2
        assert lists(prepared) == two


def test_a_place_in_a_skipping_epoch_is_not_guessed():
    """Accelerate's loader does not count, and it is ahead; a wrong place would lose samples."""
    prepared = prepare_loader(accelerator(), loader())
    batches = iter(accelerate.skip_first_batches(prepared, 2))
    next(batches)
    with pytest.raises(ConfigError, match="resume with load_state alone"):
        prepared.state_dict()


def test_len_is_that_of_whole_epochs_and_of_all_of_them_if_asked_for():
    """Scripts divide a step by it to find an epoch, also after a state was loaded."""
    prepared = prepare_loader(accelerator(), loader(), num_epochs=4)
    number = len(prepared)
    assert [len(lists(prepared)) for _ in range(4)] == [number] * 4
    again = prepare_loader(accelerator(), loader(), num_epochs=4)
    take(iter(again), 3)
    restored = prepare_loader(accelerator(), loader(), num_epochs=4)
    restored.load_state_dict(again.state_dict())
    assert len(restored) == number
    assert len(lists(restored)) == number - 3


def test_the_last_batches_of_an_epoch_make_a_step():
    """The loader tells `accumulate` where the epoch ends, also where it does not divide."""
    training = accelerator(gradient_accumulation_steps=5)
    prepared = prepare_loader(training, loader(accumulation_steps=5))
    model = training.prepare_model(torch.nn.Linear(1, 1))
    steps = 0
    for _ in prepared:
        with training.accumulate(model):
            steps += int(training.sync_gradients)
    assert len(prepared) % 5
    assert steps == -(-len(prepared) // 5)
