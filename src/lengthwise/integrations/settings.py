"""What several integrations check: settings of a trainer that contradict the sampler's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.loader import BucketBatchSampler


def sampler_of(loader: Any) -> BucketBatchSampler:
    """The sampler of a ``ResumableDataLoader``.

    Raises:
        ConfigError: a loader of another kind.
    """
    from lengthwise.loader import ResumableDataLoader

    if isinstance(loader, ResumableDataLoader):
        return loader.batch_sampler
    raise ConfigError(
        f"give a ResumableDataLoader(dataset, sampler, ...), not a {type(loader).__name__}. A "
        f"stream has no length and no place to count from: hand DataLoader(StreamingBucketBatcher("
        f"...), batch_size=None) to a loop of your own"
    )


def check_accumulation(sampler: BucketBatchSampler, steps: int, setting: str) -> None:
    """Refuse a sampler that arranges its batches for other optimiser steps than the trainer's.

    Args:
        sampler: the sampler.
        steps: batches of an optimiser step on each replica, as the trainer has it.
        setting: what the trainer calls them.

    Raises:
        ConfigError: they differ.
    """
    planned = sampler.config.accumulation_steps
    if planned != steps:
        raise ConfigError(
            f"the batches are arranged for optimiser steps of accumulation_steps={planned}, but "
            f"{setting}={steps}: make the sampler with accumulation_steps={steps}"
        )


def check_replicas(sampler: BucketBatchSampler, rank: int, num_replicas: int, trainer: str) -> None:
    """Refuse a sampler that deals to other replicas than the trainer has.

    Args:
        sampler: the sampler.
        rank: of this process among those that see different data.
        num_replicas: how many see different data.
        trainer: its name.

    Raises:
        ConfigError: they differ.
    """
    if (sampler.rank, sampler.num_replicas) != (rank, num_replicas):
        raise ConfigError(
            f"this process is replica {rank} of {num_replicas} for {trainer}, and "
            f"{sampler.rank} of {sampler.num_replicas} for the sampler: samples would be repeated "
            f"or left out. Leave the sampler's rank and num_replicas out and prepare the loader "
            f"after {trainer} has started its processes; or give rank={rank}, "
            f"num_replicas={num_replicas}."
        )
