"""The drafter and what changes it. Knows nothing of files, clocks or where samples come from."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

import torch

from lengthwise.dflash.anchors import draw_anchors
from lengthwise.dflash.batch import pack_rows, pad_rows, round_up, split_by_anchors
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.metrics import DraftSums
from lengthwise.dflash.optimizer import OptimizerConfig, build_optimizer
from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.update import Update

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import nn
    from torch.distributed import ProcessGroup

    from lengthwise.dflash.batch import DraftBatch, Sample
    from lengthwise.dflash.drafter import Drafter
    from lengthwise.dflash.target.ends import FrozenEnds
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.update import StepResult


class Learner:
    """Turns the samples of a step into one change of the drafter's weights.

    Args:
        drafter: float32, on the device it trains on.
        ends: the target's embedding and head, on the same device.
        config: the run's.
        total_steps: optimiser steps of the run.
        skipped_path: where samples of skipped steps are written down.
        group: the ranks that train together; None for all, or for one process.
        boundaries: K + 1 rising lengths: classes of documents whose losses are told apart; None
            for none.

    Attributes:
        drafter: as given.
        update: counts steps, holds the optimiser.
    """

    def __init__(
        self,
        drafter: Drafter,
        ends: FrozenEnds,
        config: TrainConfig,
        *,
        total_steps: int,
        skipped_path: Path | None = None,
        group: ProcessGroup | None = None,
        boundaries: Sequence[int] | None = None,
    ) -> None:
        """Make the optimiser; nothing is learnt yet."""
        self.drafter = drafter
        self._ends = ends
        self._config = config
        self._boundaries = boundaries
        self._loss = LossConfig(config.loss.weighting, config.loss.gamma, config.loss.alpha)
        self._device = drafter.device
        self._bf16 = _computes_in_bf16(config, self._device)
        drafter.gradient_checkpointing = config.gradient_checkpointing
        self._model: nn.Module = (
            cast("nn.Module", torch.compile(drafter, dynamic=True)) if config.compile else drafter
        )
        self.update = Update(
            drafter,
            build_optimizer(drafter, _optimizer_config(config)),
            _schedule_config(config),
            total_steps=total_steps,
            max_grad_norm=config.optimizer.max_grad_norm,
            skipped_path=skipped_path,
            group=group,
            num_classes=self._num_classes,
        )

    def learn(self, samples: Sequence[Sample], epoch: int) -> StepResult:
        """One optimiser step. Every rank calls it; a rank may have no samples.

        Args:
            samples: this rank's part of the step, on any device.
            epoch: decides, with the seed, which anchors each sample gets.
        """
        self.drafter.train()
        for part in self._parts(samples):
            batch = self._batch(part)
            self.update.backward(self._sums(batch, epoch), batch.sample_ids.tolist())
        return self.update.step()

    @torch.no_grad()
    def measure(self, samples: Sequence[Sample], epoch: int = 0) -> DraftSums:
        """Loss and accuracy of samples, without learning from them."""
        self.drafter.eval()
        sums = self._nothing()
        for part in self._parts(samples):
            sums = sums + self._sums(self._batch(part), epoch)
        return sums

    def _parts(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        """Micro-batches of like lengths, for rows with little padding; the step is the same."""
        step = self._config.step
        alike = sorted(samples, key=len)
        return list(split_by_anchors(alike, step.max_anchors_per_batch, step.max_anchors))

    def _batch(self, samples: Sequence[Sample]) -> DraftBatch:
        multiple = self._config.step.shape_multiple
        if self._config.step.rows == "padded":
            batch = pad_rows(samples, multiple_of=multiple)
        else:
            width = round_up(max(map(len, samples)), multiple)
            batch = pack_rows(samples, width, multiple_of=multiple)
        return batch.to(self._device, non_blocking=True)

    def _sums(self, batch: DraftBatch, epoch: int) -> DraftSums:
        step = self._config.step
        anchors = draw_anchors(
            batch, max_anchors=step.max_anchors, seed=self._config.seed, epoch=epoch
        )
        with self._precision():
            backend = self._config.attention
            return draft_step(
                self._model,
                self._ends,
                batch,
                anchors,
                self._loss,
                backend=backend,
                boundaries=self._boundaries,
            )

    def _precision(self) -> AbstractContextManager[object]:
        if not self._bf16:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    def _nothing(self) -> DraftSums:
        return DraftSums.zeros(self.drafter.config.block_size, self._device, self._num_classes)

    @property
    def _num_classes(self) -> int:
        return 0 if self._boundaries is None else len(self._boundaries) - 1


def _computes_in_bf16(config: TrainConfig, device: torch.device) -> bool:
    if config.precision == "auto":
        return device.type == "cuda"
    return config.precision == "bf16"


def _optimizer_config(config: TrainConfig) -> OptimizerConfig:
    section = config.optimizer
    return OptimizerConfig(
        kind=section.kind,
        learning_rate=section.learning_rate,
        betas=section.betas,
        weight_decay=section.weight_decay,
        max_grad_norm=section.max_grad_norm,
    )


def _schedule_config(config: TrainConfig) -> ScheduleConfig:
    section = config.schedule
    return ScheduleConfig(
        kind=section.kind,
        warmup_ratio=section.warmup_ratio if section.warmup_steps is None else None,
        warmup_steps=section.warmup_steps,
        final_ratio=section.final_ratio,
        decay_ratio=section.decay_ratio,
    )
