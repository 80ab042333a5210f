"""The time of an epoch in expectation: from a histogram, without planning it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
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
    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.predict.pricing import Fit

_SAMPLE = 1 << 17
"""Samples of the plan that shows how long replicas wait for each other, at most about."""


@dataclass(frozen=True, slots=True)
class _Epoch:
    """Expected totals of an epoch, over all replicas."""

    num_batches: float
    padded_tokens: float
    seconds: float
    sizes: Int64Array
    """Typical batches, for the interval: samples ..."""
    longest: Int64Array
    """... and padded length of each."""


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
    :func:`~lengthwise.core.boundaries.evaluate_boundaries`). With several replicas, how long they
    wait for each other comes from one plan in the default order, of an even thinning of the
    lengths where there are more than 131,072 samples.

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
    pricing = Pricing.of(cost, timing.level)
    replicas = require_int("num_replicas", num_replicas, least=1)
    edges = (0, hist.longest + 1) if boundaries is None else tuple(boundaries)
    edges = validate_boundaries(edges, hist.shortest, hist.longest)
    epoch = _expect(hist, limits, edges, pricing.model, ceiling=pad_to_boundary)
    config = BatchingConfig(limits=limits, boundaries=edges, pad_to_boundary=pad_to_boundary)
    mean = epoch.seconds / replicas
    computing = mean / (1 - _imbalance(hist, config, pricing.model, replicas, timing.sync_every))
    meeting = timing.meetings(epoch.num_batches / replicas) * timing.sync_seconds
    spread = pricing.spread(epoch.sizes, epoch.longest)
    parts = {name: value / replicas for name, value in _parts(hist, epoch, pricing.model).items()}
    return Prediction(
        basis="expected",
        seconds=computing + meeting,
        low=None if spread is None else spread[0] * computing + meeting,
        high=None if spread is None else spread[1] * computing + meeting,
        level=timing.level,
        real_tokens=hist.num_tokens,
        padded_tokens=epoch.padded_tokens,
        num_samples=hist.num_samples,
        num_batches=epoch.num_batches,
        num_replicas=replicas,
        rank_imbalance=(computing - mean) / (computing + meeting),
        num_shapes=None,
        parts=parts | {"waiting": computing - mean, "synchronising": meeting},
    )


def _expect(
    hist: LengthHistogram,
    limits: BatchLimits,
    edges: tuple[int, ...],
    model: CostModel,
    *,
    ceiling: bool,
) -> _Epoch:
    edges, _ = without_empty_buckets(edges, hist)
    evaluator = Evaluator.build(hist, limits, model, ceiling=ceiling)
    found = np.array(evaluator.expect(edges)[0])
    num_batches, padded, seconds = found.T
    samples = np.array([hist.between(*pair).num_samples for pair in pairwise(edges)])
    typical = np.maximum(1, np.rint(num_batches)).astype(np.int64)
    return _Epoch(
        num_batches=float(num_batches.sum()),
        padded_tokens=float(padded.sum()),
        seconds=float(seconds.sum()),
        sizes=np.repeat(np.maximum(1, np.rint(samples / num_batches)).astype(np.int64), typical),
        longest=np.repeat(np.maximum(1, np.rint(padded / samples)).astype(np.int64), typical),
    )


def _parts(hist: LengthHistogram, epoch: _Epoch, model: CostModel) -> dict[str, float]:
    """What the seconds go into, summed over replicas; a table does not tell padding apart here."""
    if not isinstance(model, StepTime):
        return {"tokens": epoch.seconds}
    squares = float(np.dot(np.square(hist.lengths, dtype=np.float64), hist.counts))
    parts = {
        "overhead": model.fixed_seconds * epoch.num_batches,
        "tokens": model.seconds_per_token * hist.num_tokens,
        "padding": model.seconds_per_token * (epoch.padded_tokens - hist.num_tokens),
        "attention": model.seconds_per_token_squared * squares,
    }
    return parts | {"padding_attention": epoch.seconds - sum(parts.values())}


def _imbalance(
    hist: LengthHistogram,
    config: BatchingConfig,
    model: CostModel,
    num_replicas: int,
    sync_every: int,
) -> float:
    """Share of their time that replicas wait for the slowest, in one plan of a part of the data."""
    if num_replicas == 1:
        return 0.0
    stride = max(1, hist.num_samples // _SAMPLE)
    kept = np.diff(np.cumsum(hist.counts) // stride, prepend=0)
    lengths = np.repeat(hist.lengths, kept)
    plan = build_plan(lengths, config, num_replicas=num_replicas)
    timing = Timing(sync_every=sync_every)
    return predict_plan(plan, lengths, model, timing).rank_imbalance
