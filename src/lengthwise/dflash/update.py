"""From micro-batches to one change of the weights: reduce, divide, check, clip, step."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
import torch.distributed as dist

from lengthwise.core.limits import require_int
from lengthwise.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from torch import nn
    from torch.distributed import ProcessGroup

    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.optimizer import Optimizers
    from lengthwise.dflash.schedule import ScheduleConfig

Outcome: TypeAlias = Literal["stepped", "empty", "skipped"]

BUCKET_BYTES = 64 << 20
_IDS_IN_MESSAGE = 20


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What an optimiser step came to, over all micro-batches and ranks.

    Attributes:
        outcome: ``"stepped"``; ``"empty"``: there was no label anywhere, weights are as they were;
            ``"skipped"``: loss or gradient was not finite, weights are as they were.
        sums: loss and metrics.
        grad_norm: global norm of the gradient of the mean loss, before clipping.
        learning_rate: of the first parameter group.
    """

    outcome: Outcome
    sums: DraftSums
    grad_norm: float
    learning_rate: float


class Update:
    """Accumulates micro-batches and makes one optimiser step of them.

    The gradient of a step is the sum of all micro-batches' gradients, on all ranks, divided by the
    sum of their weights. So it is that of the mean over labels, whatever way the step's samples
    were cut into rows, micro-batches and ranks. Ranks may have different numbers of micro-batches,
    even none: only :meth:`step` communicates. Gradients are summed there, in flat buckets, after
    the last backward; the drafter must not be wrapped in DistributedDataParallel, which averages,
    and every rank must start from the same weights.

    A step whose loss or gradient is not finite on any rank is skipped on all of them (B51: one such
    step would ruin the weights for good): nothing changes, the ids of its samples are written down,
    and after ``max_skips`` such steps in a row the run ends. The schedule counts steps that were
    made: neither skipped nor empty steps move it.

    Args:
        drafter: its parameters are changed.
        optimizer: from :func:`~lengthwise.dflash.optimizer.build_optimizer`.
        schedule: of the learning rate.
        total_steps: optimiser steps of the run, for the schedule.
        max_grad_norm: gradients are clipped to this; ``inf`` clips nothing.
        max_skips: skipped steps in a row that end the run.
        skipped_path: a JSONL file to which the first rank adds a line for every skipped step.
        group: the ranks that train together; default: all.
    """

    def __init__(
        self,
        drafter: nn.Module,
        optimizer: Optimizers,
        schedule: ScheduleConfig,
        *,
        total_steps: int,
        max_grad_norm: float = 1.0,
        max_skips: int = 10,
        skipped_path: Path | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        """Note the peak learning rates; nothing has been accumulated."""
        self.parameters = [p for p in drafter.parameters() if p.requires_grad]
        self.optimizer = optimizer
        self.schedule = schedule
        self.total_steps = require_int("total_steps", total_steps, least=1)
        self.max_grad_norm = max_grad_norm
        self.max_skips = require_int("max_skips", max_skips, least=1)
        self.skipped_path = skipped_path
        self.group = group
        self.num_steps = 0
        self.num_skipped = 0
        self.num_skipped_in_a_row = 0
        self._peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self._micro: list[tuple[DraftSums, list[int]]] = []
        schedule.factor(0, self.total_steps)  # refuse a warm-up that does not fit, now

    def backward(self, sums: DraftSums, sample_ids: Iterable[int]) -> None:
        """Add one micro-batch's gradient.

        Args:
            sums: from :func:`~lengthwise.dflash.step.draft_step`.
            sample_ids: what was in it, for the record of a skipped step.
        """
        sums.loss_sum.backward()
        self._micro.append((sums.detach(), [int(sample_id) for sample_id in sample_ids]))

    def step(self, empty_sums: DraftSums | None = None) -> StepResult:
        """Make the step, on every rank; its gradients are gone afterwards.

        Args:
            empty_sums: zero sums, for a rank without any micro-batch.

        Raises:
            TrainingError: there is no micro-batch; or too many steps in a row were skipped.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """The counts; weights and the optimiser's state are saved apart."""
        return {
            "num_steps": self.num_steps,
            "num_skipped": self.num_skipped,
            "num_skipped_in_a_row": self.num_skipped_in_a_row,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the counts of :meth:`state_dict`."""
        self.num_steps = int(state_dict["num_steps"])
        self.num_skipped = int(state_dict["num_skipped"])
        self.num_skipped_in_a_row = int(state_dict["num_skipped_in_a_row"])


def reduce_gradients(
    parameters: Sequence[torch.Tensor],
    *,
    group: ProcessGroup | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> None:
    """Sum gradients over ranks, in place; a gradient that is None counts as zeros."""
    raise NotImplementedError
