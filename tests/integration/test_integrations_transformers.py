"""Hugging Face Trainer in one process: what is refused, what is taken, awkward checkpoints."""

import warnings

import pytest
import torch

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import (
    ConfigError,
    DataError,
    LengthwiseWarning,
    MissingDependencyError,
    PlanMismatchError,
)
from lengthwise.integrations.transformers import use_lengthwise
from support.loader_runs import flat
from support.trainer_kinds import OPTIONS, Rows, Tiny, all_lengths, collate
from support.trainer_ranks import NUM_SAMPLES, Record

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


class MeanOnly(torch.nn.Module):
    """A model whose loss is a mean over its batch, whatever the trainer knows."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, index, labels=None):
        return {"loss": self.layer(index[:, None].float()).mean()}


def trainer_of(folder, model=None, dataset=None, **arguments):
    settings = {
        "output_dir": folder,
        "use_cpu": True,
        "num_train_epochs": 3,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "seed": 0,
        **arguments,
    }
    return transformers.Trainer(
        Tiny(Record()) if model is None else model,
        transformers.TrainingArguments(**settings),
        train_dataset=Rows() if dataset is None else dataset,
        data_collator=collate,
    )


def fit(trainer, checkpoint=None, **options):
    """Batches in the order in which the model got them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers, about itself and torch
        warnings.simplefilter("error", LengthwiseWarning)
        use_lengthwise(trainer, **{**OPTIONS, **options})
        trainer.train(resume_from_checkpoint=checkpoint)
    return flat(trainer.model.record.epochs.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_sampling_strategy": "group_by_length"}, "leave train_sampling_strategy"),
        ({"train_sampling_strategy": "batch_rebalance"}, "leave train_sampling_strategy"),
        ({"ignore_data_skip": True}, "ignore_data_skip=True repeats samples"),
        ({"auto_find_batch_size": True}, "lower max_tokens"),
        ({"dataloader_in_order": False}, "an order that no checkpoint can describe"),
        (
            {"average_tokens_across_devices": False, "gradient_accumulation_steps": 2},
            "average_tokens_across_devices=False weighs tokens",
        ),
    ],
)
def test_arguments_that_contradict_a_plan_are_refused(arguments, message, tmp_path):
    """At construction, with what to write instead."""
    with pytest.raises(ConfigError, match=message):
        use_lengthwise(trainer_of(tmp_path, **arguments), **OPTIONS)


def test_an_older_trainer_is_refused():
    """Before 4.57 it cannot say how many processes see different data."""
    with pytest.raises(MissingDependencyError, match=r"pip install 'transformers>=4\.57'"):
        use_lengthwise(object(), max_tokens=400)


def test_several_devices_in_one_process_are_refused(tmp_path, monkeypatch):
    """DataParallel would cut a batch that was made for one device into pieces."""
    trainer = trainer_of(tmp_path)
    monkeypatch.setattr(trainer.args, "_n_gpu", 2)
    with pytest.raises(ConfigError, match="torchrun --nproc-per-node 2"):
        use_lengthwise(trainer, **OPTIONS)


def test_a_config_must_have_the_accumulation_of_the_arguments(tmp_path):
    """With keywords it is taken from them."""
    config = BatchingConfig(limits=BatchLimits(400), seed=3)
    trainer = trainer_of(tmp_path, gradient_accumulation_steps=2)
    with pytest.raises(ConfigError, match="make the sampler with accumulation_steps=2"):
        use_lengthwise(trainer, config=config)
    with pytest.raises(ConfigError, match="replica 0 of 1 for Trainer, and 1 of 2"):
        use_lengthwise(trainer, rank=1, num_replicas=2, **OPTIONS)
    use_lengthwise(trainer, **OPTIONS)
    assert trainer.get_train_dataloader().batch_sampler.config.accumulation_steps == 2


def test_a_stream_has_no_plan(tmp_path):
    """B27: there is no len, and no number of a sample to plan with."""

    class Stream(torch.utils.data.IterableDataset):
        """Unnumbered."""

        def __iter__(self):
            return iter(())

    trainer = trainer_of(tmp_path, dataset=Stream(), max_steps=4)
    with pytest.raises(DataError, match="StreamingBucketBatcher"):
        use_lengthwise(trainer, **OPTIONS)


def test_a_model_that_only_takes_means_is_warned_about(tmp_path):
    """B40: means over unequal batches, averaged; one batch a step has nothing to average."""
    trainer = trainer_of(tmp_path, MeanOnly(), gradient_accumulation_steps=2)
    with pytest.warns(LengthwiseWarning, match="compute_loss_func="):
        use_lengthwise(trainer, **OPTIONS)
    use_lengthwise(trainer_of(tmp_path, MeanOnly()), **OPTIONS)


@pytest.mark.parametrize("has_lengths", [True, False])
def test_columns_that_the_model_does_not_take_are_dropped_after_lengths_are_read(
    has_lengths, tmp_path
):
    """The length column is one of them. Without it, lengths are those of the token lists."""
    datasets = pytest.importorskip("datasets")
    rows = {
        "input_ids": [[1] * int(length) for length in all_lengths()],
        "index": list(range(NUM_SAMPLES)),
        "text": ["not for the model"] * NUM_SAMPLES,
    }
    if has_lengths:
        rows["length"] = all_lengths().tolist()
    trainer = trainer_of(tmp_path, dataset=datasets.Dataset.from_dict(rows))
    use_lengthwise(trainer, column=None if has_lengths else "input_ids", **OPTIONS)
    loader = trainer.get_train_dataloader()
    assert sorted(loader.dataset.column_names) == ["index", "input_ids"]
    assert loader.batch_sampler.planner.lengths.tolist() == all_lengths().tolist()
    assert set(next(iter(loader))) == {"index", "input_ids", "labels"}


def test_what_the_trainer_says_about_loading_is_kept(tmp_path):
    """Workers, collator and so on are the trainer's; only batches are not."""
    trainer = trainer_of(
        tmp_path,
        dataloader_num_workers=2,
        dataloader_prefetch_factor=3,
        dataloader_persistent_workers=True,
        dataloader_pin_memory=False,
    )
    theirs = trainer.get_train_dataloader()
    ours = use_lengthwise(trainer, **OPTIONS).get_train_dataloader()
    kept = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
    assert [getattr(ours, name) for name in kept] == [2, 3, True, False]
    assert type(ours.collate_fn) is type(theirs.collate_fn)
    assert ours.worker_init_fn.func is theirs.worker_init_fn.func


@pytest.mark.parametrize(
    ("arguments", "epochs"),
    [
        ({"num_train_epochs": 3}, 3),
        ({"num_train_epochs": 1.5}, 1.5),
        ({"max_steps": 40, "gradient_accumulation_steps": 2}, None),
    ],
)
def test_runs_end_where_they_should_and_see_every_sample_until_then(arguments, epochs, tmp_path):
    """Epochs all have one length; a run that ends inside one has seen no sample of it twice."""
    trainer = trainer_of(tmp_path, **arguments)
    seen = fit(trainer)
    number = len(trainer.get_train_dataloader())
    if epochs is None:
        # 40 optimiser steps; the last one of each epoch has what is left.
        whole, rest = divmod(40, -(-number // 2))
        assert len(seen) == whole * number + 2 * rest
    else:
        assert len(seen) == -(-int(2 * epochs * number) // 2)
    for start in range(0, len(seen), number):
        samples = flat(seen[start : start + number])
        assert len(set(samples)) == len(samples)
        if start + number <= len(seen):
            assert len(samples) == NUM_SAMPLES


@pytest.mark.parametrize("restored", [True, False])
def test_a_checkpoint_resumes_wherever_it_was_made(restored, tmp_path):
    """B33, B34: inside an epoch, and after the last optimiser step of one, which may be short."""
    arguments = {
        "gradient_accumulation_steps": 2,
        "restore_callback_states_from_checkpoint": restored,
    }
    saving = {"save_strategy": "steps", "save_steps": 3}
    whole = fit(trainer_of(tmp_path, **arguments, **saving))
    number = len(whole) // 3
    per_epoch = -(-number // 2)
    assert per_epoch % 3 == 0
    for step in (3, per_epoch, per_epoch + 3, 2 * per_epoch):
        rest = fit(trainer_of(tmp_path, **arguments), str(tmp_path / f"checkpoint-{step}"))
        done = step // per_epoch * number + step % per_epoch * 2
        assert rest == whole[done:], step


def test_a_checkpoint_of_other_batches_is_refused(tmp_path):
    """Its place would be one in other data, or in other epochs."""
    fit(trainer_of(tmp_path, save_strategy="steps", save_steps=5))
    checkpoint = str(tmp_path / "checkpoint-5")
    with pytest.raises(PlanMismatchError, match=r"max_batch_size \(8 then, 4 now\)"):
        fit(trainer_of(tmp_path), checkpoint, max_batch_size=4)
    with pytest.raises(PlanMismatchError, match=r"seed \(0 then, 7 now\)"):
        fit(trainer_of(tmp_path, data_seed=7), checkpoint)


def test_a_longer_run_may_need_more_batches_and_the_message_says_what_to_do(tmp_path):
    """The number of batches is that of the longest epoch of the run."""
    short = trainer_of(tmp_path, num_train_epochs=1, save_strategy="steps", save_steps=5)
    fit(short)
    then = short.get_train_dataloader().batch_sampler.config.num_batches
    checkpoint = str(tmp_path / "checkpoint-5")
    longer = trainer_of(tmp_path, num_train_epochs=9)
    with pytest.raises(PlanMismatchError, match=rf"num_batches \({then} then.*as it was then"):
        fit(longer, checkpoint)


def test_a_checkpoint_without_lengthwise_is_gone_on_from_with_a_warning(tmp_path):
    """Which of its epoch's samples were seen cannot be known; later checkpoints are as usual."""
    plain = trainer_of(tmp_path, save_strategy="steps", save_steps=5, max_steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain.train()
    saving = {"save_strategy": "steps", "save_steps": 5, "max_steps": 16}
    trainer = trainer_of(tmp_path, **saving)
    with pytest.raises(LengthwiseWarning, match="not made with lengthwise"):
        fit(trainer, str(tmp_path / "checkpoint-5"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = use_lengthwise(trainer_of(tmp_path, **saving), **OPTIONS)
        trainer.train(str(tmp_path / "checkpoint-5"))
    fit(trainer_of(tmp_path, **saving), str(tmp_path / "checkpoint-10"))
