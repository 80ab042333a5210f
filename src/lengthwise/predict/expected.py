"""The time of an epoch in expectation: from a histogram, without planning it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.bucketing import validate_boundaries, without_empty_buckets
from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import StepTime
from lengthwise.core.expectation import Evaluator
from lengthwise.core.limits import require_int
from lengthwise.core.planner import build_plan
from lengthwise.predict.plan import DEFAULT_TIMING, predict_plan
from lengthwise.predict.prediction import Prediction
from lengthwise.predict.pricing import Pricing, Timing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lengthwise.core.cost import CostModel
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits
    from lengthwise.predict.pricing import Fit

_SAMPLE = 1 << 17
"""Samples at most, about, of the plan that stands for the epoch where no expectation is known."""


def predict_expected(
    hist: LengthHistogram,
    limits: BatchLimits,
    boundaries: Iterable[int] | None,
    cost: Fit | CostModel,
    *,
    num_replicas: int = 1,
    pad_to_boundary: bool = False,
    timing: Timing = DEFAULT_TIMING,
) -> Prediction:
    """What an epoch packed greedily inside buckets is expected to take.

    The seconds of all batches are the exact expectation over orders of the samples (see
    :func:`~lengthwise.core.boundaries.evaluate_boundaries`). What has no formula comes from one
    plan in the default order, of an even thinning of the lengths where there are more than 131,072
    samples: how wide the interval is, how long several replicas wait for each other, and how a
    table's seconds split into real tokens and padding.

    Args:
        hist: lengths in tokens and their counts.
        limits: the batch limits.
        boundaries: K + 1 rising integers that cover the lengths; None for one bucket, which is what
            random batches are.
        cost: a fit from ``lengthwise.calibrate``, or a cost model that returns seconds.
        num_replicas: replicas that run one batch each in every step.
        pad_to_boundary: pad every batch to the longest length of its bucket.
        timing: how replicas meet, and how wide the interval is to be.

    Raises:
        ConfigError: boundaries that do not cover the lengths, or a setting out of range.
        DataError: there are no samples.
        OversizeError: a sample fits no batch; apply the ``oversize`` policy first.
    """
    model = Pricing.of(cost, timing.level).model
    replicas = require_int("num_replicas", num_replicas, least=1)
    edges = (0, hist.longest + 1) if boundaries is None else tuple(boundaries)
    edges = validate_boundaries(edges, hist.shortest, hist.longest)
    evaluator = Evaluator.build(hist, limits, model, ceiling=pad_to_boundary)
    buckets = evaluator.expect(without_empty_buckets(edges, hist)[0])[0]
    num_batches, padded_tokens, seconds = (sum(column) for column in zip(*buckets, strict=True))
    config = BatchingConfig(limits=limits, boundaries=edges, pad_to_boundary=pad_to_boundary)
    typical = _typical(hist, config, cost, replicas, replace(timing, sync_seconds=0.0))
    mean = seconds / replicas
    computing = mean / (1 - typical.rank_imbalance)
    meeting = timing.meetings(num_batches / replicas) * timing.sync_seconds
    scale = computing / typical.seconds
    parts = _parts(hist, num_batches, padded_tokens, seconds, model, typical.parts)
    parts = {name: value / replicas for name, value in parts.items()}
    return Prediction(
        basis="expected",
        seconds=computing + meeting,
        low=None if typical.low is None else typical.low * scale + meeting,
        high=None if typical.high is None else typical.high * scale + meeting,
        level=timing.level,
        real_tokens=hist.num_tokens,
        padded_tokens=padded_tokens,
        num_samples=hist.num_samples,
        num_batches=num_batches,
        num_replicas=replicas,
        rank_imbalance=(computing - mean) / (computing + meeting),
        num_shapes=None,
        extrapolated=typical.extrapolated,
        parts=parts | {"waiting": computing - mean, "synchronising": meeting},
    )


def _typical(
    hist: LengthHistogram,
    config: BatchingConfig,
    cost: Fit | CostModel,
    num_replicas: int,
    timing: Timing,
) -> Prediction:
    """One plan's prediction, of all samples or of an even thinning."""
    stride = max(1, hist.num_samples // _SAMPLE)
    kept = np.diff(np.cumsum(hist.counts) // stride, prepend=0)
    lengths = np.repeat(hist.lengths, kept)
    return predict_plan(
        build_plan(lengths, config, num_replicas=num_replicas), lengths, cost, timing
    )


def _parts(
    hist: LengthHistogram,
    num_batches: float,
    padded_tokens: float,
    seconds: float,
    model: CostModel,
    typical: dict[str, float],
) -> dict[str, float]:
    """What the seconds go into, summed over replicas; by a table's plan where it has no formula."""
    if not isinstance(model, StepTime):
        share = typical["tokens"] / (typical["tokens"] + typical["padding"])
        return {"tokens": share * seconds, "padding": (1 - share) * seconds}
    squares = float(np.dot(np.square(hist.lengths, dtype=np.float64), hist.counts))
    parts = {
        "overhead": model.fixed_seconds * num_batches,
        "tokens": model.seconds_per_token * hist.num_tokens,
        "padding": model.seconds_per_token * (padded_tokens - hist.num_tokens),
        "attention": model.seconds_per_token_squared * squares,
    }
    return parts | {"padding_attention": seconds - sum(parts.values())}
