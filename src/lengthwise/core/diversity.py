"""What "diverse batches" means, in numbers.

Padding wants batches of one length each; optimisation wants every step to look like the data
set. The numbers here say how far a plan is from either. Where this module says "data set" it
means the samples that the batches hold: what a policy left out is in no number.

Where a quantity does not vary at all (one batch, equal lengths) there is nothing to represent
or to correlate, and the number is 0, never NaN; each docstring names its case.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.limits import require_int
from lengthwise.core.moments import Moments, by_step, check_finite, num_slots
from lengthwise.errors import DataError, PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches
    from lengthwise.core.limits import Int64Array

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Diversity:
    """How diverse a plan is; see ``docs/concepts/diversity.md``.

    Attributes:
        partner_repeat_rate: share of pairs of one batch that meet again in the next epoch; None
            where no next epoch was given.
        order_correlation: of mean length from one batch to the next, in the order of the plan.
        replica_order_correlation: the same along the batches that one replica runs.
        length_spread: standard deviation of length inside a batch, over the data set's.
        design_effect: of length, for an optimiser step; 1 is a random sample's, below is better.
        quantity_design_effect: the same of the quantity given, or None.
        step_tokens_cv: standard deviation over mean of the real tokens of an optimiser step.
        step_samples_cv: the same of its samples.
        num_shapes: distinct pairs of samples and padded length.
        replica_balance: mean over steps of mean over maximum cost; 1 is perfect.
        batches_per_step: batches of an optimiser step.
    """

    partner_repeat_rate: float | None
    order_correlation: float
    replica_order_correlation: float
    length_spread: float
    design_effect: float
    quantity_design_effect: float | None
    step_tokens_cv: float
    step_samples_cv: float
    num_shapes: int
    replica_balance: float
    batches_per_step: int

    def to_dict(self) -> dict[str, float | int | None]:
        """All numbers by name; plain Python, ready for JSON."""
        return asdict(self)


def measure_diversity(
    batches: Batches,
    lengths: npt.ArrayLike,
    *,
    next_batches: Batches | None = None,
    num_replicas: int = 1,
    accumulation_steps: int = 1,
    costs: npt.ArrayLike | None = None,
    quantity: npt.ArrayLike | None = None,
) -> Diversity:
    """Every number of this module for one plan.

    Args:
        batches: in the order in which they run: ``s * num_replicas + r`` is step ``s`` of
            replica ``r``. A whole number of steps.
        lengths: of each sample, shape (N,); samples outside all batches may have any length.
        next_batches: the next epoch's, of the same samples.
        num_replicas: batches that run at the same time.
        accumulation_steps: steps of one optimiser step.
        costs: of each batch, shape (B,), at least 0; None takes padded tokens.
        quantity: of each sample, shape (N,), finite: a loss, a difficulty, a label.

    Raises:
        ConfigError: a count is not an integer of at least 1.
        DataError: an array has the wrong shape or a value that is not finite.
        PlanError: the batches are not a whole number of steps.
    """
    num_replicas = require_int("num_replicas", num_replicas, least=1)
    accumulation_steps = require_int("accumulation_steps", accumulation_steps, least=1)
    per_step = num_replicas * accumulation_steps
    moments = Moments.of(batches, lengths)
    means = moments.sums / batches.sizes
    return Diversity(
        partner_repeat_rate=(
            None if next_batches is None else partner_repeat_rate(batches, next_batches)
        ),
        order_correlation=_correlation(means, 1),
        replica_order_correlation=_correlation(means, num_replicas),
        length_spread=_spread(moments),
        design_effect=_design_effect(moments, batches.sizes, per_step),
        quantity_design_effect=(
            None if quantity is None else design_effect(batches, quantity, per_step)
        ),
        step_tokens_cv=step_variation(batches.tokens, per_step),
        step_samples_cv=step_variation(batches.sizes, per_step),
        num_shapes=num_shapes(batches),
        replica_balance=replica_balance(
            batches.padded_tokens if costs is None else costs, num_replicas
        ),
        batches_per_step=per_step,
    )


def utilization(batches: Batches, max_tokens: int) -> float:
    """Real tokens over what the batches could hold: ``sum(tokens) / (B * max_tokens)``.

    The number of steps follows it. 0 where there are no batches.
    """
    room = len(batches) * require_int("max_tokens", max_tokens, least=1)
    return int(batches.tokens.sum()) / room if room else 0.0


def partner_repeat_rate(batches: Batches, next_batches: Batches) -> float:
    """Share of the pairs of samples that share a batch in the first plan and also in the second.

    With ``P`` the set of unordered pairs ``{i, j}`` that share a batch in ``batches`` and ``Q``
    that of ``next_batches``: ``|P & Q| / |P|``. Counted exactly, in O(N). Frozen batches give 1.
    0 where no two samples share a batch.

    Args:
        batches: one epoch's.
        next_batches: another epoch's of the same data set; it may hold other samples of it.
    """
    from lengthwise.core.kernels.diversity import count_repeated_pairs, label_samples

    # In Python integers: the pairs of a very large batch leave int64.
    num_pairs = sum(
        int(size) * (int(size) - 1) // 2 * int(count)
        for size, count in zip(*np.unique(batches.sizes, return_counts=True), strict=True)
    )
    if not num_pairs:
        return 0.0
    slots = max(num_slots(batches), num_slots(next_batches))
    small = len(next_batches) < 2**31
    labels = np.full(slots, -1, np.int32 if small else np.int64)
    label_samples(next_batches.order, next_batches.starts, next_batches.sizes, labels)
    repeated = count_repeated_pairs(
        batches.order, batches.starts, batches.sizes, labels, len(next_batches)
    )
    return repeated / num_pairs


def order_correlation(batches: Batches, lengths: npt.ArrayLike, stride: int = 1) -> float:
    """Lag-1 correlation of mean length from one batch to the next.

    Pearson's correlation of the pairs ``(x[t], x[t + stride])``, with ``x`` the mean length of a
    batch. Stride 1 follows the plan; stride ``num_replicas`` follows each replica's own batches,
    the pairs of all replicas pooled (so replicas that differ for the whole epoch count as
    correlated). A plan that walks up a stair is near 1, one that alternates is -1. 0 where there
    are fewer than two pairs, or no variation.
    """
    means = Moments.of(batches, lengths).sums / batches.sizes
    return _correlation(means, require_int("stride", stride, least=1))


def length_spread(batches: Batches, lengths: npt.ArrayLike) -> float:
    """Mean over batches of the standard deviation of length inside, over the data set's.

    Population standard deviations, each batch counted once. About 1 for large random batches, 0
    for batches of one length each. 0 where the data set has one length only.
    """
    return _spread(Moments.of(batches, lengths))


def design_effect(batches: Batches, quantity: npt.ArrayLike, batches_per_step: int) -> float:
    """How representative an optimiser step is in a per-sample quantity (Kish, 1965).

    ``E[(S - mu N)**2] / (sigma**2 E[N])``, with ``S`` the step's sum of the quantity, ``N`` its
    samples, ``mu`` and ``sigma**2`` the quantity's mean and variance over the data set, and ``E``
    the mean over optimiser steps. 1: as representative as ``N`` samples drawn at random. 27: as
    noisy as a step with 27 times fewer random samples. Below 1: better than random, as in
    stratified sampling.

    An incomplete last step is left out: there is one an epoch at most, and it would speak for all
    (where no step is complete, it is taken). 0 where the quantity does not vary.

    Args:
        batches: in the order in which they run.
        quantity: per sample, shape (N,), finite.
        batches_per_step: replicas times accumulation steps.
    """
    per_step = require_int("batches_per_step", batches_per_step, least=1)
    return _design_effect(Moments.of(batches, quantity), batches.sizes, per_step)


def step_variation(amounts: Int64Array, batches_per_step: int) -> float:
    """Coefficient of variation (standard deviation over mean) of a step's sum of ``amounts``.

    Args:
        amounts: per batch, at least 0, shape (B,): tokens, samples, costs.
        batches_per_step: replicas times accumulation steps; an incomplete last step is left out
            as in :func:`design_effect`. 0 for one step, or where all amounts are 0.
    """
    totals = by_step(amounts, batches_per_step)
    mean = float(totals.mean()) if totals.size else 0.0
    return float(totals.std()) / mean if mean else 0.0


def num_shapes(batches: Batches) -> int:
    """How many distinct pairs (samples, padded length) there are; what a compiler sees."""
    order = np.lexsort((batches.padded, batches.sizes))
    sizes, padded = batches.sizes[order], batches.padded[order]
    changes = (np.diff(sizes) != 0) | (np.diff(padded) != 0)
    return int(changes.sum()) + bool(order.size)


def replica_balance(costs: npt.ArrayLike, num_replicas: int) -> float:
    """Mean over steps of (mean cost / maximum cost) of the batches that run together.

    1 where no replica waits; 0.9 where the machine is idle for a tenth of the time. 1 where there
    are no steps; a step of no cost counts as 1.

    Args:
        costs: per batch, at least 0, finite, shape (B,), in the order in which they run.
        num_replicas: batches of a step.

    Raises:
        PlanError: the batches are not a whole number of steps.
    """
    num_replicas = require_int("num_replicas", num_replicas, least=1)
    array = check_finite(np.asarray(costs, np.float64), "costs")
    if array.size % num_replicas:
        raise PlanError(
            f"{array.size:,} batches are no whole number of steps of {num_replicas:,} replicas"
        )
    if not array.size:
        return 1.0
    if float(array.min()) < 0:
        raise DataError(f"costs must be at least 0, got {array.min()} at {int(array.argmin()):,}")
    steps = array.reshape(-1, num_replicas)
    most = steps.max(axis=1)
    idle = most == 0
    shares = (steps / np.where(idle, 1.0, most)[:, None]).mean(axis=1)
    return float(np.where(idle, 1.0, shares).mean())


def _spread(moments: Moments) -> float:
    if not moments.std:
        return 0.0
    return float(moments.stds.mean()) / moments.std


def _design_effect(moments: Moments, sizes: Int64Array, per_step: int) -> float:
    if not moments.std:
        return 0.0
    samples = by_step(sizes, per_step)
    deviations = by_step(moments.sums, per_step) - moments.mean * samples
    return float(np.mean(deviations**2)) / (moments.std**2 * float(samples.mean()))


def _correlation(values: Floats, stride: int) -> float:
    first, second = values[:-stride], values[stride:]
    if first.size < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    first, second = first - first.mean(), second - second.mean()
    # Scaled by the largest, so that squares neither overflow nor vanish.
    first, second = first / np.abs(first).max(), second / np.abs(second).max()
    raw = float(np.dot(first, second) / np.sqrt(np.dot(first, first) * np.dot(second, second)))
    return min(1.0, max(-1.0, raw))
