"""Loaders for DDP and torchdata: what they refuse, and every place that torchdata can save."""

import sys

import pytest
import torch
from torch.utils.data import IterableDataset

from lengthwise.errors import ConfigError, MissingDependencyError
from lengthwise.integrations.ddp import ddp_loader
from lengthwise.integrations.settings import sampler_of
from lengthwise.integrations.torchdata import stateful_loader
from lengthwise.loader import ResumableDataLoader
from lengthwise.loader.testing import check_resume
from support.loader_runs import heavy_tail, make

LENGTHS = heavy_tail(60)
DATA = list(range(60))


def test_ddp_needs_a_process_group():
    """Without one each process would be the only replica and train on everything."""
    with pytest.raises(ConfigError, match="init_process_group first"):
        ddp_loader(DATA, make(LENGTHS))


def test_ddp_refuses_replicas_that_the_processes_cannot_be(monkeypatch):
    """Two replicas on three processes: one process would repeat another's samples."""
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
    with pytest.raises(ConfigError, match="2 replicas, which 3 processes cannot be"):
        ddp_loader(DATA, make(LENGTHS, num_replicas=2))
    # Three processes that share one replica's batches are tensor parallel, and fine.
    loader = ddp_loader(DATA, make(LENGTHS, num_replicas=1), collate_fn=list)
    assert isinstance(loader, ResumableDataLoader)


def test_integrations_take_loaders_that_know_their_place():
    """B27: a stream has no len; a plain loader's sampler is ahead of training."""

    class Stream(IterableDataset):
        """Nothing to count from."""

        def __iter__(self):
            return iter(DATA)

    for loader in (torch.utils.data.DataLoader(Stream()), torch.utils.data.DataLoader(DATA)):
        with pytest.raises(ConfigError, match="give a ResumableDataLoader"):
            sampler_of(loader)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 with torch 2.13
@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchdata_resumes_from_every_place_of_two_epochs(num_workers):
    """B33, B34, B36: also at the end of an epoch; the state belongs to batches that were taken."""
    pytest.importorskip("torchdata")

    def fresh():
        sampler = make(LENGTHS, strategy="random", max_batch_size=8)
        return stateful_loader(DATA, sampler, collate_fn=list, num_workers=num_workers)

    num_batches = sum(len(list(make(LENGTHS, strategy="random", max_batch_size=8))) for _ in "12")
    # torchdata's own counters are in the state too, and differ after a restart.
    assert check_resume(fresh, compare_states=False) >= num_batches


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_torchdata_refuses_what_a_place_could_not_be_told_in():
    """The same rules as for our own loader."""
    pytest.importorskip("torchdata")
    with pytest.raises(ConfigError, match="59 samples, the sampler was made from 60"):
        stateful_loader(DATA[1:], make(LENGTHS))
    with pytest.raises(ConfigError, match="in_order=False"):
        stateful_loader(DATA, make(LENGTHS), in_order=False)


def test_a_missing_torchdata_is_named(monkeypatch):
    """None in sys.modules is how Python is told that a module is not there."""
    monkeypatch.setitem(sys.modules, "torchdata.stateful_dataloader", None)
    with pytest.raises(MissingDependencyError, match="pip install torchdata"):
        stateful_loader(DATA, make(LENGTHS))
