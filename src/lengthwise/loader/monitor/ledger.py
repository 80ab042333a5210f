"""Losses of a run, kept where they are until they are read together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.loader.monitor.curve import LossCurve

if TYPE_CHECKING:
    from lengthwise.core.limits import Int64Array

Loss = torch.Tensor | float


@dataclass(frozen=True, slots=True)
class _Kept:
    record: dict[str, Any]
    bucket: int
    loss: Loss | None


class LossLedger:
    """Takes each step's loss without waiting for its device; :meth:`read` waits once for all.

    Args:
        num_buckets: length classes.
        half_life: of the means, in steps.
    """

    def __init__(self, num_buckets: int, half_life: float) -> None:
        """Nothing is kept."""
        self.curve = LossCurve(num_buckets, half_life)
        self.last: dict[str, float | None] = {"loss": None, "adjusted_loss": None}
        self._steps: list[_Kept] = []
        self._samples: list[tuple[Int64Array, torch.Tensor]] = []
        self._sums = np.zeros(num_buckets)
        self._counts = np.zeros(num_buckets, np.int64)

    def __len__(self) -> int:
        """Steps that are kept."""
        return len(self._steps)

    def keep(self, record: dict[str, Any], bucket: int, loss: Loss | None) -> None:
        """Keep a step's record and loss.

        A tensor is copied: the memory of a loss is written again by the next step of a CUDA graph.
        """
        copied = loss.detach().clone() if isinstance(loss, torch.Tensor) else loss
        self._steps.append(_Kept(record, bucket, copied))

    def keep_samples(self, buckets: Int64Array, losses: torch.Tensor) -> None:
        """Keep the losses of single samples, each of a bucket; both of shape (num_samples,)."""
        self._samples.append((buckets, losses.detach().clone()))

    def read(self) -> list[dict[str, Any]]:
        """Records of the steps that were kept, with their losses; they enter the curve in order."""
        steps, self._steps = self._steps, []
        samples, self._samples = self._samples, []
        losses = iter(_read([kept.loss for kept in steps if kept.loss is not None]))
        records = []
        for kept in steps:
            found: dict[str, float | None] = {"loss": None, "adjusted_loss": None}
            if kept.loss is not None:
                value = next(losses)
                adjusted = self.curve.add(kept.record["step"], kept.bucket, value)
                found = self.last = {"loss": value, "adjusted_loss": adjusted}
            records.append({**kept.record, **found})
        for buckets, values in samples:
            self._add_samples(buckets, values.double().cpu().numpy())
        return records

    def _add_samples(self, buckets: Int64Array, values: Any) -> None:
        finite = np.isfinite(values)
        size = self._sums.size
        self._sums += np.bincount(buckets[finite], values[finite], size)
        self._counts += np.bincount(buckets[finite], minlength=size)

    def mean_sample_loss(self, bucket: int) -> float | None:
        """Mean of the single samples' losses in a bucket; None without any."""
        count = int(self._counts[bucket])
        return float(self._sums[bucket]) / count if count else None

    def offset(self, bucket: int) -> float | None:
        """How far a bucket's mean lies above the overall mean; None without losses."""
        own, level = self.curve.buckets[bucket].value, self.curve.overall.value
        return None if own is None or level is None else own - level


def _read(losses: list[Loss]) -> list[float]:
    """All losses as numbers; tensors in one transfer."""
    tensors = [loss for loss in losses if isinstance(loss, torch.Tensor)]
    if not tensors:
        return [float(loss) for loss in losses]
    flat = [tensor.reshape(()).float().to(tensors[0].device) for tensor in tensors]
    values = iter(torch.stack(flat).tolist())
    return [next(values) if isinstance(loss, torch.Tensor) else float(loss) for loss in losses]
