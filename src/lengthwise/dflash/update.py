"""From micro-batches to one change of the weights: reduce, divide, check, clip, step."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
import torch.distributed as dist

from lengthwise.core.limits import require_int
from lengthwise.dflash.meetings import Meetings
from lengthwise.dflash.metrics import DraftSums
from lengthwise.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from torch.distributed import ProcessGroup

    from lengthwise.dflash.drafter import Drafter
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
        num_classes: length classes of the micro-batches' sums.

    Attributes:
        meetings: how long this rank has been with the others.
    """

    def __init__(
        self,
        drafter: Drafter,
        optimizer: Optimizers,
        schedule: ScheduleConfig,
        *,
        total_steps: int,
        max_grad_norm: float = 1.0,
        max_skips: int = 10,
        skipped_path: Path | None = None,
        group: ProcessGroup | None = None,
        num_classes: int = 0,
    ) -> None:
        """Check the numbers; nothing has been accumulated."""
        self._num_classes = num_classes
        self.drafter = drafter
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
        self.meetings = Meetings()
        self._micro: list[tuple[DraftSums, list[int]]] = []
        schedule.factor(0, self.total_steps)  # refuse a warm-up that does not fit, now

    def backward(self, sums: DraftSums, sample_ids: Iterable[int]) -> None:
        """Add one micro-batch's gradient.

        Args:
            sums: from :func:`~lengthwise.dflash.step.draft_step`.
            sample_ids: what was in it, for the record of a skipped step.
        """
        sums.loss_sum.backward()  # type: ignore[no-untyped-call]
        self._micro.append((sums.detach(), [int(sample_id) for sample_id in sample_ids]))

    def step(self) -> StepResult:
        """Make the step, on every rank together; its gradients are gone afterwards.

        Raises:
            TrainingError: ``max_skips`` steps in a row were not finite; names the last one's
                samples. On every rank.
        """
        own = self._sums()
        with self.meetings.awaiting():
            with self.meetings.held(self.parameters[0].device):
                sums = own.all_reduced(self.group)
                reduce_gradients(self.parameters, group=self.group)
            grads = [p.grad for p in self.parameters if p.grad is not None]
            norm_of_sum = _norm(grads, like=sums.loss_sum)
            weight, finite = self._weight_if_finite(sums, norm_of_sum)
        self.meetings.settle()
        grad_norm = float(norm_of_sum) / weight if weight else float(norm_of_sum)
        rate = self.optimizer.scale_learning_rate(
            self.schedule.factor(self.num_steps, self.total_steps)
        )
        outcome: Outcome = "skipped" if not finite else "stepped" if weight else "empty"
        if outcome == "stepped":
            # Nothing is divided by zero: the weight is not, and a small norm clips nothing.
            clip = min(1.0, self.max_grad_norm / max(grad_norm, 1e-30))
            for grad in grads:
                grad.mul_(clip / weight)
            self.optimizer.step()
            self.num_steps += 1
            self.num_skipped_in_a_row = 0
        self.optimizer.zero_grad()
        micro, self._micro = self._micro, []
        if outcome == "skipped":
            self._skip(micro)
        return StepResult(outcome, sums, grad_norm, rate)

    def _sums(self) -> DraftSums:
        device = self.parameters[0].device
        total = DraftSums.zeros(self.drafter.config.block_size, device, self._num_classes)
        for sums, _ in self._micro:
            total = total + sums
        return total

    def _weight_if_finite(self, sums: DraftSums, norm: torch.Tensor) -> tuple[float, bool]:
        """The step's weight, and whether loss and gradient are finite on every rank."""
        unsound = ~(torch.isfinite(sums.loss_sum) & torch.isfinite(norm))
        both = torch.stack([sums.weight_sum.to(norm), unsound.to(norm)])
        if _num_ranks(self.group) > 1:
            # All have the same sums already; a maximum leaves no doubt that all decide alike.
            dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        weight, bad = both.tolist()
        return weight, not bad

    def _skip(self, micro: list[tuple[DraftSums, list[int]]]) -> None:
        self.num_skipped += 1
        self.num_skipped_in_a_row += 1
        found = [(math.isfinite(float(sums.loss_sum)), ids) for sums, ids in micro]
        ranks = [found]
        if _num_ranks(self.group) > 1:
            ranks = [[] for _ in range(_num_ranks(self.group))]
            with self.meetings.awaiting():
                dist.all_gather_object(ranks, found, group=self.group)
        everything = [one for rank in ranks for one in rank]
        reason = "gradient" if all(sound for sound, _ in everything) else "loss"
        sample_ids = [
            sample_id
            for sound, ids in everything
            if reason == "gradient" or not sound
            for sample_id in ids
        ]
        if self.skipped_path is not None and _rank(self.group) == 0:
            line = {"num_steps": self.num_steps, "reason": reason, "sample_ids": sample_ids}
            self.skipped_path.parent.mkdir(parents=True, exist_ok=True)
            with self.skipped_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if self.num_skipped_in_a_row >= self.max_skips:
            self._give_up(reason, sample_ids)

    def _give_up(self, reason: str, sample_ids: list[int]) -> None:
        shown = ", ".join(map(str, sample_ids[:_IDS_IN_MESSAGE]))
        more = ", ..." if len(sample_ids) > _IDS_IN_MESSAGE else ""
        raise TrainingError(
            f"the {reason} was not finite in {self.num_skipped_in_a_row:,} steps in a row, after "
            f"{self.num_steps:,} steps that were made; samples of the last one: {shown}{more}. "
            f"Look at their features, lower the learning rate, or go back to an earlier checkpoint"
        )

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
    """Sum gradients over ranks, in place; a gradient that is None counts as zeros.

    Call it on every rank with the same parameters in the same order. Gradients travel in flat
    buckets, one all-reduce each; which bucket a gradient is in depends on the parameters alone, so
    ranks agree even where some have no gradient. Summed, not averaged: the caller divides.

    Args:
        parameters: whose ``grad`` is summed.
        group: the ranks; default: all. Nothing happens where there is one rank alone.
        bucket_bytes: the most bytes of a bucket, unless one gradient alone has more.
    """
    if _num_ranks(group) == 1:
        return
    for bucket in _buckets(parameters, bucket_bytes):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat, group=group)
        summed = torch.split(flat, [grad.numel() for grad in grads])
        for parameter, grad, new in zip(bucket, grads, summed, strict=True):
            parameter.grad = grad.copy_(new.view_as(grad))


def _buckets(parameters: Sequence[torch.Tensor], bucket_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Parameters in their order, cut where a bucket is full or the type changes."""
    bucket: list[torch.Tensor] = []
    held = 0
    for parameter in parameters:
        if bucket and (
            held + parameter.nbytes > bucket_bytes or parameter.dtype != bucket[0].dtype
        ):
            yield bucket
            bucket, held = [], 0
        bucket.append(parameter)
        held += parameter.nbytes
    if bucket:
        yield bucket


def _norm(grads: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The norm of all gradients together; zero without any."""
    norms = [torch.linalg.vector_norm(grad) for grad in grads]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros_like(like)


def _num_ranks(group: ProcessGroup | None) -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(group)
    return 1


def _rank(group: ProcessGroup | None) -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(group)
    return 0
