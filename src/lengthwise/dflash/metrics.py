"""What a training step adds up: the loss and how well the drafter predicts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True, eq=False)
class DraftSums:
    """Sums over blocks. They add up over micro-batches and ranks; divide only at the end.

    Attributes:
        loss_sum: weighted cross-entropies; shape (). Carries the gradient in training.
        weight_sum: their weights; shape ().
        correct: right predictions at block positions 1 .. B - 1; shape (B - 1,).
        valid: labels there; shape (B - 1,).
        streak_sum: tokens a verification would give, with the text so far as context: the labels
            right from position 1 on without a gap, and one; summed over blocks; shape ().
        num_blocks: blocks with at least one label; shape ().
        by_length: loss_sum and weight_sum again, apart by the length of the document that a block
            stands in; shape (2, K) for K length classes. K is 0 where nobody asked.
    """

    loss_sum: torch.Tensor
    weight_sum: torch.Tensor
    correct: torch.Tensor
    valid: torch.Tensor
    streak_sum: torch.Tensor
    num_blocks: torch.Tensor
    by_length: torch.Tensor = field(default_factory=lambda: torch.zeros(2, 0))

    @classmethod
    def zeros(
        cls, block_size: int, device: torch.device | str = "cpu", num_classes: int = 0
    ) -> DraftSums:
        """Of no block: what a rank without any micro-batch brings."""
        zero = torch.zeros((), device=device)
        none = torch.zeros((), dtype=torch.int64, device=device)
        counts = none.repeat(block_size - 1)
        by_length = torch.zeros(2, num_classes, device=device)
        return cls(zero, zero, counts, counts, none, none, by_length)

    def __add__(self, other: DraftSums) -> DraftSums:
        """Both together, of one block size and the same length classes."""
        assert self.by_length.shape == other.by_length.shape, "sums of different length classes"
        return DraftSums(*(a + b for a, b in zip(self._parts(), other._parts(), strict=True)))

    @property
    def loss(self) -> float:
        """The weighted mean cross-entropy in nats; NaN without a label. Waits for the device."""
        return _ratio(self.loss_sum, self.weight_sum)

    @property
    def streak(self) -> float:
        """Mean tokens a verification, from 1 to B; NaN without a block.

        It is found with true text before each block, and so is above what decoding reaches.
        """
        return _ratio(self.streak_sum, self.num_blocks)

    @property
    def accuracy(self) -> list[float]:
        """The share of right predictions at positions 1 .. B - 1; NaN where there is no label."""
        pairs = zip(self.correct.tolist(), self.valid.tolist(), strict=True)
        return [right / count if count else float("nan") for right, count in pairs]

    def to(self, device: torch.device | str) -> DraftSums:
        """The same on a device, without the gradient."""
        return DraftSums(*(part.detach().to(device) for part in self._parts()))

    @property
    def loss_by_length(self) -> list[float]:
        """The loss of each length class; NaN where it has no label. Waits for the device."""
        pairs = zip(*self.by_length.tolist(), strict=True)
        return [total / weight if weight else float("nan") for total, weight in pairs]

    def detach(self) -> DraftSums:
        """The same without the gradient."""
        return replace(self, loss_sum=self.loss_sum.detach())

    def all_reduced(self, group: ProcessGroup | None = None) -> DraftSums:
        """The sums over all ranks, detached; one all-reduce, on every rank."""
        parts = [part.detach() for part in self._parts()]
        if not (dist.is_available() and dist.is_initialized()):
            return DraftSums(*parts)
        # Counts are exact in float64 up to 2**53; MPS has only float32.
        dtype = torch.float32 if self.loss_sum.device.type == "mps" else torch.float64
        packed = torch.cat([part.to(dtype).flatten() for part in parts])
        dist.all_reduce(packed, group=group)
        sizes = [part.numel() for part in parts]
        split = torch.split(packed, sizes)
        return DraftSums(
            *(new.reshape(old.shape).to(old.dtype) for new, old in zip(split, parts, strict=True))
        )

    def _parts(self) -> list[torch.Tensor]:
        return [getattr(self, one.name) for one in fields(self)]


def _ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> float:
    weight = float(denominator)
    return float(numerator.detach()) / weight if weight else float("nan")
