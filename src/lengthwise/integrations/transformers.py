"""Hugging Face ``Trainer``: planned batches with one line in an existing script."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError, LengthwiseWarning, MissingDependencyError
from lengthwise.integrations.settings import check_accumulation, check_replicas

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.loader import BucketBatchSampler, ResumableDataLoader

_KEPT = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)
"""What the trainer's own loader says about loading, apart from which samples make a batch."""


def use_lengthwise(
    trainer: Any, *, lengths: npt.ArrayLike | None = None, column: str | None = None, **options: Any
) -> Any:
    """Train on planned batches; one line after the trainer is made, before ``train()``.

    Everything else stays the trainer's: columns, collator, workers, accumulation, checkpoints.
    ``per_device_train_batch_size`` no longer applies. ``resume_from_checkpoint`` goes on with the
    very next batch, in any epoch: all epochs get the same number of batches, which is what the
    trainer's arithmetic takes for granted. Evaluation is not changed: ``Trainer`` averages its
    losses as if all batches were equal.

    Args:
        trainer: a ``Trainer`` or a subclass, with a map-style ``train_dataset``.
        lengths: tokens of each sample; by default found as by ``BucketBatchSampler.from_dataset``.
        column: the column that holds lengths or tokens; default: ``args.length_column_name``,
            where the data set has it.
        **options: as for ``BucketBatchSampler``. Seed, ``accumulation_steps`` and ``drop_last``
            come from the training arguments.

    Returns:
        The trainer.

    Raises:
        ConfigError: a training argument that would change batches or repeat samples.
        DataError: the data set's lengths are not known.
        MissingDependencyError: transformers is older than 4.57.

    Example:
        >>> trainer = use_lengthwise(Trainer(...), max_tokens=16_384)  # doctest: +SKIP
    """
    from lengthwise.integrations.transformers_checkpoint import callback

    if not hasattr(trainer, "get_total_train_batch_size"):
        raise MissingDependencyError(
            "use_lengthwise works with the Trainer of transformers 4.57 and later: "
            "pip install 'transformers>=4.57'"
        )
    _check_arguments(trainer.args)
    sampler = _sampler(trainer, lengths, column, options)
    args, theirs = trainer.args, trainer.get_train_dataloader
    dp_size = trainer.get_total_train_batch_size(args) // (
        args.train_batch_size * args.gradient_accumulation_steps
    )
    dp_rank = args.process_index // (args.world_size // dp_size)
    check_accumulation(sampler, args.gradient_accumulation_steps, "gradient_accumulation_steps")
    check_replicas(sampler, dp_rank, dp_size, "Trainer")
    if args.gradient_accumulation_steps * dp_size > 1:
        _check_loss(trainer)
    trainer.get_train_dataloader = lambda: _loader(theirs(), sampler, args)
    trainer.add_callback(callback())
    return trainer


def _check_arguments(args: Any) -> None:
    strategy = getattr(args, "train_sampling_strategy", "random")
    if strategy != "random" or getattr(args, "group_by_length", False):
        raise ConfigError(
            "the training arguments choose the order of samples, which the plan decides: leave "
            "train_sampling_strategy (group_by_length) out; strategy='sorted' groups by length"
        )
    if args.n_gpu > 1:
        raise ConfigError(
            f"{args.n_gpu} GPUs in one process (DataParallel) take batches apart that are made for "
            f"one each: start the script with torchrun --nproc-per-node {args.n_gpu}"
        )
    if getattr(args, "auto_find_batch_size", False):
        raise ConfigError(
            "auto_find_batch_size sets a batch size that is not used: lower max_tokens"
        )
    if not getattr(args, "dataloader_in_order", True):
        raise ConfigError(
            "dataloader_in_order=False hands batches out in an order that no checkpoint can "
            "describe; leave it out"
        )
    if args.ignore_data_skip:
        raise ConfigError(
            "ignore_data_skip=True repeats samples after resuming; leave it out: skipping reads no "
            "data, only numbers"
        )


def _sampler(
    trainer: Any, lengths: npt.ArrayLike | None, column: str | None, options: dict[str, Any]
) -> BucketBatchSampler:
    from lengthwise.loader import BucketBatchSampler

    args, dataset = trainer.args, trainer.train_dataset
    if "config" not in options:
        from_args = {
            "seed": args.seed if args.data_seed is None else args.data_seed,
            "accumulation_steps": args.gradient_accumulation_steps,
            "drop_last": args.dataloader_drop_last,
        }
        options = {**from_args, **options}
    if lengths is not None:
        return BucketBatchSampler(lengths, **options)
    named = args.length_column_name
    if column is None and named in (getattr(dataset, "column_names", None) or ()):
        column = named
    return BucketBatchSampler.from_dataset(dataset, column=column, **options)


def _check_loss(trainer: Any) -> None:
    if not trainer.model_accepts_loss_kwargs and trainer.compute_loss_func is None:
        warnings.warn(
            "the model's loss takes no num_items_in_batch, so Trainer averages the means of "
            "batches that hold unequal numbers of tokens; give it compute_loss_func=",
            LengthwiseWarning,
            stacklevel=3,
        )
    elif not getattr(trainer.args, "average_tokens_across_devices", True):
        raise ConfigError(
            "average_tokens_across_devices=False weighs tokens by which process has them: leave it "
            "on, since processes have batches of unequal numbers of tokens"
        )


def _loader(theirs: Any, sampler: BucketBatchSampler, args: Any) -> ResumableDataLoader[Any]:
    """The trainer's loader with other batches, from the run's start."""
    from lengthwise.loader import BucketBatchSampler, ResumableDataLoader

    fresh = BucketBatchSampler.from_planner(sampler.planner, sampler.rank)
    by_steps = args.max_steps * args.gradient_accumulation_steps / len(fresh)
    fresh.even_epochs(math.ceil(by_steps if args.max_steps > 0 else args.num_train_epochs))
    return ResumableDataLoader(
        theirs.dataset, fresh, **{name: getattr(theirs, name) for name in _KEPT}
    )
