"""The time of a planned epoch, exactly: every batch is costed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.cost import StepTime, evaluate_model
from lengthwise.core.diversity import num_shapes
from lengthwise.core.histogram import check_lengths
from lengthwise.errors import PlanMismatchError
from lengthwise.predict.prediction import Prediction
from lengthwise.predict.pricing import Pricing, Timing

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches
    from lengthwise.core.cost import CostModel, Float64Array
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.plan import EpochPlan
    from lengthwise.predict.pricing import Fit

DEFAULT_TIMING = Timing()


def predict_plan(
    plan: EpochPlan,
    lengths: npt.ArrayLike,
    cost: Fit | CostModel,
    timing: Timing = DEFAULT_TIMING,
) -> Prediction:
    """What a planned epoch takes: every batch is costed, and a step lasts as its slowest replica.

    Args:
        plan: the epoch.
        lengths: tokens of each sample that it was planned for, shape (N,).
        cost: a fit from ``lengthwise.calibrate``, or a cost model that returns seconds.
        timing: how replicas meet, and how wide the interval is to be.

    Raises:
        PlanMismatchError: the plan is of other lengths.
        ConfigError: the cost model returns no proper seconds.
    """
    pricing = Pricing.of(cost, timing.level)
    batches, replicas = plan.batches, plan.num_replicas
    seconds = pricing.seconds(batches.sizes, batches.padded)
    slowest = _slowest(seconds, replicas, timing.sync_every)
    computing, mean = float(seconds[slowest].sum()), float(seconds.sum()) / replicas
    meeting = timing.meetings(plan.num_steps) * timing.sync_seconds
    spread = pricing.spread(batches.sizes[slowest], batches.padded[slowest])
    parts = _parts(batches, _lengths_of(plan, lengths), pricing.model, seconds)
    parts = {name: value / replicas for name, value in parts.items()}
    stats = plan.stats
    return Prediction(
        basis="plan",
        seconds=computing + meeting,
        low=None if spread is None else spread[0] * computing + meeting,
        high=None if spread is None else spread[1] * computing + meeting,
        level=timing.level,
        real_tokens=stats.real_tokens,
        padded_tokens=stats.padded_tokens,
        num_samples=stats.num_samples,
        num_batches=stats.num_batches,
        num_replicas=replicas,
        rank_imbalance=(computing - mean) / (computing + meeting),
        num_shapes=num_shapes(batches),
        extrapolated=pricing.extrapolated(batches.sizes, batches.padded),
        parts=parts | {"waiting": computing - mean, "synchronising": meeting},
    )


def _slowest(seconds: Float64Array, num_replicas: int, every: int) -> Int64Array:
    """Indices of the batches that the clock follows: of each meeting, the slowest replica's."""
    steps = seconds.reshape(-1, num_replicas)
    starts = np.arange(0, len(steps), every)
    sums = np.add.reduceat(steps, starts, axis=0)
    chosen = np.repeat(sums.argmax(axis=1), every)[: len(steps)]
    batches: Int64Array = np.arange(len(steps)) * num_replicas + chosen
    return batches


def _lengths_of(plan: EpochPlan, lengths: npt.ArrayLike) -> Int64Array:
    """Tokens that the plan counts for each sample, shape (N,)."""
    values = check_lengths(lengths)
    if plan.config.oversize == "truncate":
        values = np.minimum(values, plan.config.limits.longest_allowed)
    return values


def _parts(
    batches: Batches, lengths: Int64Array, model: CostModel, seconds: Float64Array
) -> dict[str, float]:
    """What the seconds of all batches go into, summed over replicas."""
    samples, edges = batches.gather(np.arange(len(batches)))
    if samples.size and int(samples.max()) >= lengths.size:
        raise PlanMismatchError(
            f"the plan holds sample {int(samples.max()):,}, but there are {lengths.size:,} lengths"
        )
    own = lengths[samples]
    sums = np.add.reduceat(own, edges[:-1]) if own.size else own
    if not np.array_equal(sums, batches.tokens):
        at = int(np.argmax(sums != batches.tokens))
        raise PlanMismatchError(
            f"batch {at:,} holds {int(batches.tokens[at]):,} tokens by the plan and "
            f"{int(sums[at]):,} by these lengths; the plan was made for others"
        )
    if isinstance(model, StepTime):
        return _parts_of_step_time(batches, own, model, float(seconds.sum()))
    real = _at_own_length(np.repeat(batches.sizes, batches.sizes), own, model)
    return {"tokens": real, "padding": float(seconds.sum()) - real}


def _parts_of_step_time(
    batches: Batches, own: Int64Array, model: StepTime, total: float
) -> dict[str, float]:
    squares = float(np.square(own, dtype=np.float64).sum())
    real, padded = float(own.sum()), float(batches.padded_tokens.sum())
    parts = {
        "overhead": model.fixed_seconds * len(batches),
        "tokens": model.seconds_per_token * real,
        "padding": model.seconds_per_token * (padded - real),
        "attention": model.seconds_per_token_squared * squares,
    }
    return parts | {"padding_attention": total - sum(parts.values())}


def _at_own_length(sizes: Int64Array, own: Int64Array, model: CostModel) -> float:
    """Seconds if no sample were padded: each takes its share of a batch of its own length.

    Args:
        sizes: samples of the batch that each sample is in, shape (M,).
        own: tokens of each sample, shape (M,).
        model: the cost model.
    """
    kinds, counts = np.unique(np.stack((sizes, own)), axis=1, return_counts=True)
    costs = evaluate_model(model, kinds[0], kinds[1])
    return float((costs / kinds[0] * counts).sum())
