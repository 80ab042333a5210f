"""How a loss curve jumps, and how much of that is the mixture of lengths in its steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.diagnose.records import figure
from lengthwise.diagnose.smoothing import level, nearby_mean

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.diagnose.records import RunRecords

    Float64Array = npt.NDArray[np.float64]

LEAST_STEPS = 30
"""Fewer say nothing about how a curve jumps."""
FIRST = 10
"""Records at the beginning in no mean square: there a loss falls as it never does again."""
MOST_HALF_LIFE, HALF_LIFE_SHARE = 100.0, 1 / 20
"""Half-life of what is nearby: a twentieth of the records, at least 5 and at most 100 of them."""

_CLASS = re.compile(r"loss_length_(\d+)_(\d+)$")


@dataclass(frozen=True, slots=True, eq=False)
class LossSeries:
    """Losses of steps, apart by length class.

    Attributes:
        steps: their numbers, int64 (T,).
        loss: of each, finite, (T,).
        losses: of each class in it, (T, K); 0 where it has none.
        shares: of each class in the weight of the step, (T, K); each row adds up to 1.
        classes: what each is, in words.
    """

    steps: npt.NDArray[np.int64]
    loss: Float64Array
    losses: Float64Array
    shares: Float64Array
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Jumpiness:
    """How far steps' losses lie from their level, and why.

    With l(t) the loss of a step, l_k(t) that of length class k in it, and w_k(t) the class's share
    of the step's weight: m(t) is the level, a parabola through the steps nearby, v_k(t) the mean of
    w_k nearby, and o_k(t) that of l_k - m, all without step t itself. Then, as in the law of total
    variance,

        l - m = c + r,  c = sum of (w_k - v_k) o_k,  E[(l - m)^2] = E[c (l - m)] + E[r (l - m)]:

    the first is between classes (what the step's mixture of lengths adds to the usual mixture's),
    the second within them. Where each step is of one class these are the variance of the class
    means and the mean variance inside a class. The share between classes may lie a little below 0
    by chance.

    Attributes:
        num_steps: records that it is found from.
        deviation: root of the mean squared distance from the level, in the loss's unit.
        between: mean square that the mixture of lengths makes.
        within: mean square that is left.
        residuals: r(t), (T,).
        usual: m + c, what the step was to be, (T,).
        offsets: mean of l_k - m over the run by class, (K,).
    """

    num_steps: int
    deviation: float
    between: float
    within: float
    residuals: Float64Array
    usual: Float64Array
    offsets: Float64Array

    @property
    def share_between(self) -> float:
        """Of the mean square, what the mixture of lengths explains."""
        both = self.between + self.within
        return self.between / both if both > 0 else 0.0


def loss_series(records: RunRecords) -> LossSeries | None:
    """Losses by length class; None where the records do not tell classes or their shares.

    Steps whose loss is not finite are left out. A ``BatchMonitor`` names one bucket a step.
    """
    rows = [row for row in records.steps if figure(row, "loss") is not None]
    if not rows:
        return None
    if records.kind == "monitor":
        return _of_buckets(records)
    names = [name for name in rows[-1] if _CLASS.match(name)]
    shares = [name.replace("loss_", "share_", 1) for name in names]
    rows = [row for row in rows if all(figure(row, name) is not None for name in shares)]
    if not names or not rows:
        return None
    table = np.array([[figure(row, name) or 0.0 for name in shares] for row in rows])
    losses = np.array([[figure(row, name) or 0.0 for name in names] for row in rows])
    words = []
    for name in names:
        lo, hi = name.split("_")[2:]
        words.append(f"{int(lo):,} to {int(hi):,} tokens")
    return _series(rows, losses, table, tuple(words))


def _of_buckets(records: RunRecords) -> LossSeries | None:
    rows = [
        row
        for row in records.steps
        if figure(row, "loss") is not None and figure(row, "bucket") is not None
    ]
    if not rows:
        return None
    buckets = np.array([int(row["bucket"]) for row in rows])
    shares = np.eye(int(buckets.max()) + 1)[buckets]
    loss = np.array([float(row["loss"]) for row in rows])
    words = tuple(f"bucket {number}" for number in range(shares.shape[1]))
    return _series(rows, shares * loss[:, None], shares, words)


def _series(
    rows: list[dict[str, object]],
    losses: Float64Array,
    shares: Float64Array,
    classes: tuple[str, ...],
) -> LossSeries | None:
    loss = np.array([figure(row, "loss") or 0.0 for row in rows])
    whole = shares.sum(axis=1)
    kept = whole > 0
    if not kept.any():
        return None
    steps = np.array([row["step"] for row in rows], np.int64)
    shares = shares[kept] / whole[kept, None]
    return LossSeries(steps[kept], loss[kept], losses[kept], shares, classes)


def jumpiness(series: LossSeries, left_out: npt.NDArray[np.bool_] | None = None) -> Jumpiness:
    """Divide a curve's jumps; see :class:`Jumpiness`. The first ten records are in no mean square.

    Args:
        series: at least :data:`LEAST_STEPS` steps.
        left_out: (T,), steps that enter no level, no offset and no mean square: spikes.
    """
    kept = np.ones(series.loss.size, bool) if left_out is None else ~left_out
    half_life = float(np.clip(series.loss.size * HALF_LIFE_SHARE, 5.0, MOST_HALF_LIFE))
    weights = kept.astype(np.float64)
    middle = level(series.loss, weights, half_life)
    own = series.shares * weights[:, None]
    apart = np.where(series.shares > 0, series.losses - middle[:, None], 0.0)
    usual = nearby_mean(series.shares, np.broadcast_to(weights[:, None], own.shape), half_life)
    mixture = ((series.shares - usual) * nearby_mean(apart, own, half_life)).sum(axis=1)
    distance = series.loss - middle
    residuals = distance - mixture
    counted = kept & (np.arange(kept.size) >= FIRST)
    total = own.sum(axis=0)
    offsets = (own * apart).sum(axis=0) / np.where(total > 0, total, 1.0)
    return Jumpiness(
        num_steps=int(counted.sum()),
        deviation=float(np.sqrt((distance[counted] ** 2).mean())),
        between=float((mixture * distance)[counted].mean()),
        within=float((residuals * distance)[counted].mean()),
        residuals=residuals,
        usual=middle + mixture,
        offsets=offsets,
    )
