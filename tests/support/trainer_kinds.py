"""One training run for each integration, as a user would write it, with a model of two layers."""

import json
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset

from lengthwise.loader import BucketBatchSampler, ResumableDataLoader
from support.trainer_ranks import ACCUMULATION, NUM_SAMPLES

OPTIONS = {"max_tokens": 400, "max_batch_size": 8, "strategy": "random"}
"""A strategy whose number of batches varies from epoch to epoch."""


def all_lengths():
    values = 10 * np.random.default_rng(3).pareto(1.0, NUM_SAMPLES) + 2
    return np.minimum(values, 200).astype(np.int64)


class Rows(Dataset):
    """Samples that hold their own number."""

    def __init__(self):
        self.lengths = all_lengths()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return {"index": index, "input_ids": [index % 7] * int(self.lengths[index])}


def collate(samples):
    width = max(len(sample["input_ids"]) for sample in samples)
    rows = [s["input_ids"] + [-1] * (width - len(s["input_ids"])) for s in samples]
    ids = torch.tensor(rows)
    return {
        "index": torch.tensor([sample["index"] for sample in samples]),
        "input_ids": ids.clamp(min=0),
        "labels": torch.where(ids < 0, -100, ids),
    }


class Tiny(torch.nn.Module):
    """A loss that takes ``num_items_in_batch``, as transformers' models do."""

    def __init__(self, record=None):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(7, 4)
        self.output = torch.nn.Linear(4, 7)
        self.record = record

    def forward(self, index, input_ids, labels, num_items_in_batch=None, **kwargs):
        if self.record is not None:
            self.record.batch(index)
        logits = self.output(self.embedding(input_ids))
        total = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="sum"
        )
        divisor = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / divisor}


def make_loader(options, **settings):
    sampler = BucketBatchSampler.from_dataset(Rows(), **OPTIONS, **settings)
    return ResumableDataLoader(Rows(), sampler, **loading(options))


def loading(options):
    return {"collate_fn": collate, "num_workers": options.num_workers}


def start_processes():
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=300))


def plain_loop(options, record, loader, model, save):
    """A loop as in any script; nothing calls ``set_epoch``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    record.len = len(loader)
    while record.epoch < options.epochs:
        for batch in loader:
            model(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            record.steps += 1
            if record.place == [options.save_in_epoch, options.save_after]:
                save()
        record.epoch += 1


def ddp(options, record):
    from lengthwise.integrations.ddp import ddp_loader

    start_processes()
    sampler = BucketBatchSampler(all_lengths(), **OPTIONS)
    loader = ddp_loader(Rows(), sampler, **loading(options))
    if options.resume:
        loader.load_state_dict(json.loads((options.resume / "checkpoint.json").read_text()))
        record.epoch = loader.state_dict()["epoch"]

    def save():
        if dist.get_rank() == 0:
            text = json.dumps(loader.state_dict())
            (options.folder / "checkpoint.json").write_text(text)

    model = torch.nn.parallel.DistributedDataParallel(Tiny(record))
    plain_loop(options, record, loader, model, save)


def torchdata(options, record):
    from lengthwise.integrations.torchdata import stateful_loader

    start_processes()
    sampler = BucketBatchSampler(all_lengths(), **OPTIONS)
    loader = stateful_loader(Rows(), sampler, **loading(options))
    name = f"checkpoint{dist.get_rank()}.pt"
    if options.resume:
        loader.load_state_dict(torch.load(options.resume / name))
        record.epoch = options.save_in_epoch

    model = torch.nn.parallel.DistributedDataParallel(Tiny(record))

    def save():
        torch.save(loader.state_dict(), options.folder / name)

    plain_loop(options, record, loader, model, save)


def fabric(options, record):
    from lightning.fabric import Fabric

    from lengthwise.integrations.lightning import fabric_loader

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    loader = fabric_loader(fabric, make_loader(options))
    model = fabric.setup_module(Tiny(record))
    if options.resume:
        fabric.load(options.resume / "checkpoint.ckpt", {"loader": loader})
        record.epoch = loader.state_dict()["epoch"]

    def save():
        fabric.save(options.folder / "checkpoint.ckpt", {"loader": loader})

    plain_loop(options, record, loader, model, save)


def accelerate(options, record, *, skip=False):
    from accelerate import Accelerator

    from lengthwise.integrations.accelerate import prepare_loader

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
    model = Tiny(record)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = make_loader(options, accumulation_steps=ACCUMULATION)
    loader = prepare_loader(accelerator, loader, num_epochs=options.epochs)
    record.len = len(loader)
    active = loader
    if options.resume:
        accelerator.load_state(options.resume / "checkpoint")
        record.epoch = options.save_in_epoch
        if skip:
            active = accelerator.skip_first_batches(loader, options.save_after)
    while record.epoch < options.epochs:
        for batch in active:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                record.steps += int(accelerator.sync_gradients)
                optimizer.step()
                optimizer.zero_grad()
            if not skip and record.place == [options.save_in_epoch, options.save_after]:
                accelerator.save_state(options.folder / "checkpoint")
        record.epoch, active = record.epoch + 1, loader


def accelerate_skip(options, record):
    accelerate(options, record, skip=True)


def lightning(options, record):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from lengthwise.integrations.lightning import lightning_loader

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.tiny = Tiny()

        def on_train_epoch_start(self):
            record.epoch = self.current_epoch

        def training_step(self, batch, batch_idx):
            record.epoch = self.current_epoch  # a run resumed inside an epoch has no start of it
            record.batch(batch["index"])
            return self.tiny(**batch)["loss"]

        def on_before_zero_grad(self, optimizer):
            record.steps += 1

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self):
            loader = make_loader(options, accumulation_steps=ACCUMULATION)
            loader = lightning_loader(self.trainer, loader)
            record.len = len(loader)
            return loader

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=options.epochs,
        accumulate_grad_batches=ACCUMULATION,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(options.folder, every_n_train_steps=1, save_top_k=-1)],
    )
    trainer.fit(Module(), ckpt_path=options.resume and _lightning_checkpoint(options))


def _lightning_checkpoint(options):
    (path,) = (
        path
        for path in options.resume.glob(f"epoch={options.save_in_epoch}-*.ckpt")
        if torch.load(path, weights_only=False)["loops"]["fit_loop"]["epoch_loop.batch_progress"][
            "current"
        ]["ready"]
        == options.save_after
    )
    return path


def transformers(options, record):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from lengthwise.integrations.transformers import use_lengthwise

    class Watch(TrainerCallback):
        def on_epoch_begin(self, args, state, control, **others):
            record.epoch = int(state.epoch + 1e-9)

        def on_step_end(self, args, state, control, **others):
            record.steps += 1

    arguments = TrainingArguments(
        output_dir=options.folder,
        use_cpu=True,
        num_train_epochs=options.epochs,
        gradient_accumulation_steps=ACCUMULATION,
        data_seed=0,
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=options.num_workers,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(
        Tiny(record),
        arguments,
        train_dataset=Rows(),
        data_collator=collate,
        callbacks=[Watch()],
    )
    use_lengthwise(trainer, **OPTIONS)
    record.len = len(trainer.get_train_dataloader())
    before = options.save_in_epoch * -(-record.len // ACCUMULATION)
    arguments.save_steps = before + options.save_after // ACCUMULATION
    checkpoint = options.resume and options.resume / f"checkpoint-{arguments.save_steps}"
    trainer.train(resume_from_checkpoint=checkpoint)


KINDS = {
    "ddp": ddp,
    "torchdata": torchdata,
    "accelerate": accelerate,
    "accelerate-skip": accelerate_skip,
    "lightning": lightning,
    "fabric": fabric,
    "transformers": transformers,
}
