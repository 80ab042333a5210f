"""What a pipeline consists of, before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import drafter_config, load_data, target_facts
from lengthwise.errors import ConfigError
from lengthwise.pipeline.arena import ArenaShape
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.pages import PageAllocator, pages_needed

if TYPE_CHECKING:
    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData


@dataclass(frozen=True, slots=True, eq=False)
class PipelineSetup:
    """What a pipeline consists of before it runs; nothing heavy has been loaded.

    Attributes:
        config: the run's.
        data: what is trained on and held out.
        plan: the epochs.
        drafter: its sizes.
        arena: the memory between target and drafter; large enough for every epoch.
    """

    config: TrainConfig
    data: TrainingData
    plan: TrainingPlan
    drafter: DrafterConfig
    arena: ArenaShape


def set_up_pipeline(config: TrainConfig) -> PipelineSetup:
    """Check devices, data and target's config, and plan the memory.

    Raises:
        ConfigError: a device that is not there, or a value that does not fit the target.
        DataError: data that cannot be trained on.
        ModelError: no such target.
    """
    _check_devices(config)
    data = load_data(config)
    plan = TrainingPlan(data, config)
    target_config, dtype = target_facts(config)
    drafter = drafter_config(config, target_config)
    shape = ArenaShape(
        _num_pages(plan, config), config.pipeline.page_tokens, drafter.feature_size, dtype
    )
    return PipelineSetup(config, data, plan, drafter, shape)


def dispatcher_of(setup: PipelineSetup, num_done: int, *, num_workers: int) -> Dispatcher:
    """What decides who does what, where ``num_done`` optimiser steps are done."""
    return Dispatcher(
        setup.plan,
        setup.data.dataset.lengths,
        PageAllocator(setup.arena.num_pages, setup.arena.page_tokens),
        num_workers=num_workers,
        num_ranks=len(setup.config.pipeline.drafters),
        num_done=num_done,
    )


def _check_devices(config: TrainConfig) -> None:
    """Whether all devices are there, without touching one: the coordinator needs none itself."""
    section = config.pipeline
    for name in (*section.targets, *section.drafters):
        try:
            device = torch.device(name)
        except RuntimeError as error:
            raise ConfigError(f"pipeline: {name!r} is no device: {error}") from None
        if section.engine == "ray":
            if device.type not in {"cpu", "cuda"}:
                raise ConfigError(f"pipeline: {name!r}: Ray gives out cpu and cuda")
            continue
        there = torch.cuda.device_count() if device.type == "cuda" else 0
        if device.type not in {"cpu", "cuda"} or (
            device.type == "cuda" and (device.index or 0) >= there
        ):
            raise ConfigError(
                f"pipeline: {name!r} cannot be used here: this machine has its CPU and {there} "
                f"CUDA devices"
            )
    ranks = [torch.device(name) for name in section.drafters]
    if len({device.type for device in ranks}) > 1:
        raise ConfigError(
            f"pipeline.drafter_devices must be of one kind, got {', '.join(map(str, ranks))}"
        )
    if section.engine == "ray":
        return  # each actor gets a device of its own
    if ranks[0].type == "cuda" and len({device.index or 0 for device in ranks}) < len(ranks):
        raise ConfigError(
            "pipeline.drafter_devices: each CUDA device can be one rank's only, got "
            + ", ".join(map(str, ranks))
        )


def _num_pages(plan: TrainingPlan, config: TrainConfig) -> int:
    """Pages that suffice in every epoch of the run: each is planned once, to be sure."""
    section = config.pipeline
    num_epochs = -(-plan.num_steps // plan.steps_per_epoch)
    return max(
        pages_needed(
            plan.epoch(number).mix,
            plan.data.lengths,
            section.page_tokens,
            section.num_ahead,
        )
        for number in range(num_epochs)
    )
