"""Lightning in one process: what is refused, epochs, and checkpoints at awkward places."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from lengthwise.errors import ConfigError, LengthwiseWarning
from lengthwise.integrations.lightning import ENDLESS, LightningLoader, fabric_loader
from lengthwise.integrations.lightning import lightning_loader as prepare
from lengthwise.loader import ResumableDataLoader
from lengthwise.loader.testing import check_resume
from support.loader_runs import flat, heavy_tail, make, take

pytestmark = pytest.mark.slow
lightning = pytest.importorskip("lightning")
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402 - after importorskip

LENGTHS = heavy_tail(60)
DATA = list(range(60))


def fake_trainer(**changed):
    """What the loader asks a trainer for."""
    usual = {
        "accumulate_grad_batches": 1,
        "distributed_sampler_kwargs": None,
        "overfit_batches": 0.0,
        "max_epochs": 3,
        "max_steps": -1,
    }
    return SimpleNamespace(**{**usual, **changed})


def loader(num_workers=0, **options):
    sampler = make(LENGTHS, **{"strategy": "random", "max_batch_size": 8, **options})
    return ResumableDataLoader(DATA, sampler, collate_fn=torch.tensor, num_workers=num_workers)


def lists(batches):
    return [batch.tolist() for batch in batches]


def even_epochs(number):
    """What must be trained on: the epochs of a sampler that was evened over as many."""
    plain = loader()
    plain.batch_sampler.even_epochs(number)
    return [lists(plain) for _ in range(number)]


class Module(lightning.LightningModule):
    """Writes down the batches it trains on."""

    def __init__(self, num_workers=0):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.num_workers = num_workers
        self.seen = {}

    def training_step(self, batch, batch_idx):
        self.seen.setdefault(self.current_epoch, []).append(batch.tolist())
        return self.layer(batch[:, None].float()).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

    def train_dataloader(self):
        return prepare(self.trainer, loader(self.num_workers))


def fit(module, folder, *, ckpt_path=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning, about itself and torch
        warnings.simplefilter("error", LengthwiseWarning)
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"max_epochs": 3, "enable_checkpointing": False, **options},
        )
        trainer.fit(module, ckpt_path=ckpt_path)
    return module.seen


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"accumulate_grad_batches": 4}, "make the sampler with accumulation_steps=4"),
        ({"overfit_batches": 2}, "strategy='sorted'"),
        (
            {"distributed_sampler_kwargs": {"num_replicas": 2, "rank": 1}},
            r"replica 1 of 2 for Lightning, and 0 of 1 for the sampler.*after Lightning has",
        ),
    ],
)
def test_settings_that_contradict_the_sampler_are_refused(changed, message):
    """Each message says what to write instead."""
    with pytest.raises(ConfigError, match=message):
        prepare(fake_trainer(**changed), loader())


def test_lightning_cannot_construct_a_dealt_sampler_anew():
    """B29: a plain DataLoader and use_distributed_sampler=True, the default."""
    from lightning.fabric.utilities.data import _update_dataloader
    from torch.utils.data import SequentialSampler

    dealt = DataLoader(DATA, batch_sampler=make(LENGTHS, num_replicas=2))
    with pytest.raises(ConfigError, match="use_distributed_sampler=False"):
        _update_dataloader(dealt, SequentialSampler(DATA))


@pytest.mark.parametrize(
    ("changed", "num_epochs"),
    [
        ({}, 3),
        ({"max_epochs": -1, "max_steps": 30}, 3),
        ({"max_epochs": 2, "max_steps": 30}, 2),
        ({"max_epochs": None}, ENDLESS),
    ],
)
def test_epochs_are_evened_over_the_run(changed, num_epochs):
    """30 steps of about 12 batches end in the third epoch."""
    prepared = prepare(fake_trainer(**changed), loader())
    other = loader()
    other.batch_sampler.even_epochs(num_epochs)
    assert prepared.loader.batch_sampler.config == other.batch_sampler.config
    assert prepared.loader.batch_sampler.config.num_batches is not None


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_resumes_from_every_place_of_two_epochs(num_workers):
    """B33, B34, B36, of the loader by itself."""
    assert check_resume(lambda: LightningLoader(loader(num_workers)), num_epochs=2) > 20


def test_being_told_the_epoch_that_runs_changes_nothing():
    """Lightning makes the iterator, then tells the epoch; workers may have fetched all of it."""
    few = LightningLoader(loader(2, max_batch_size=None, max_tokens=4000))
    batches = iter(few)
    first = next(batches)
    fetched = few.loader.batch_sampler.iteration
    assert 1 < fetched.num_yielded == fetched.num_steps  # else this would show nothing
    few.sampler.set_epoch(0)
    assert (few.state_dict()["epoch"], few.state_dict()["step"]) == (0, 1)
    assert sorted(flat([first.tolist(), *lists(batches)])) == DATA
    few.sampler.set_epoch(1)
    assert few.state_dict()["epoch"] == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_epochs_of_a_run_are_those_of_the_plan(num_workers, tmp_path):
    """B30: no hook of the user's calls set_epoch."""
    seen = fit(Module(num_workers), tmp_path)
    assert [seen[epoch] for epoch in range(3)] == even_epochs(3)


def test_epochs_cut_short_are_still_different_epochs(tmp_path):
    """B30: Lightning tells the epoch, so that limit_train_batches does not repeat the first one."""
    seen = fit(Module(), tmp_path, limit_train_batches=3)
    assert [seen[epoch] for epoch in range(3)] == [batches[:3] for batches in even_epochs(3)]


@pytest.mark.parametrize("every", [5, "epoch"])
def test_a_checkpoint_resumes_wherever_it_was_made(every, tmp_path):
    """B33, B34: inside each epoch, after its last batch, and when it has ended."""
    expected = even_epochs(3)
    number = len(expected[0])
    when = {"every_n_train_steps": every if every != "epoch" else number}
    saving = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, **when)
    ended = ModelCheckpoint(tmp_path, filename="end-{step}", save_top_k=-1, every_n_epochs=1)
    callbacks = [saving] if every != "epoch" else [saving, ended]
    fit(Module(), tmp_path, enable_checkpointing=True, callbacks=callbacks)
    checkpoints = sorted(tmp_path.glob("*.ckpt"))
    assert len(checkpoints) == (3 * number // 5 if every != "epoch" else 6)
    for checkpoint in checkpoints:
        step = int(checkpoint.stem.rpartition("=")[2])
        seen = fit(Module(), tmp_path, ckpt_path=checkpoint)
        assert flat(seen.values()) == flat(expected)[step:], checkpoint.name


class FakeFabric:
    """What the loader asks Fabric for."""

    strategy = SimpleNamespace(distributed_sampler_kwargs=None)

    @staticmethod
    def to_device(batch):
        return batch + 1000


def test_fabric_moves_batches_and_saves_the_place(tmp_path):
    """B29, B33: Fabric's own wrapper would begin with epoch 0 after every restart."""
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    plain = loader()
    epochs = [lists(plain) for _ in range(3)]
    whole = fabric_loader(fabric, loader())
    assert lists(whole) == epochs[0]
    assert lists(take(iter(whole), 4)) == epochs[1][:4]
    fabric.save(tmp_path / "place.ckpt", {"loader": whole})
    rest = fabric_loader(fabric, loader())
    fabric.load(tmp_path / "place.ckpt", {"loader": rest})
    assert lists(rest) == epochs[1][4:]
    assert lists(rest) == epochs[2]
    moved = fabric_loader(FakeFabric(), loader())
    assert [[i - 1000 for i in batch] for batch in lists(moved)] == epochs[0]


def test_fabric_refuses_other_replicas():
    """As Lightning's trainer."""
    fabric = SimpleNamespace(
        strategy=SimpleNamespace(distributed_sampler_kwargs={"num_replicas": 4, "rank": 3})
    )
    with pytest.raises(ConfigError, match="replica 3 of 4 for Fabric, and 0 of 1"):
        fabric_loader(fabric, loader())
