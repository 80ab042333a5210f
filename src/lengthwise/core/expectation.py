"""What greedy packing of each bucket is expected to cost in an epoch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.cost import PaddedTokens, Steps, evaluate_model
from lengthwise.core.support import MOST_POINTS, build_support, build_table, coarsen

if TYPE_CHECKING:
    from lengthwise.core.cost import CostModel
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array

    Expected = tuple[float, float, float]

EVALUATION_WORK = 1_000_000
"""Samples times sizes up to which a bucket is followed sample by sample."""
_SIMULATED_SAMPLES = 1 << 20
_MOST_EPOCHS = 64
_LEAST_EPOCHS = 4


def expect_buckets(
    histogram: LengthHistogram,
    limits: BatchLimits,
    boundaries: tuple[int, ...],
    model: CostModel,
    *,
    ceiling: bool,
) -> tuple[list[Expected], tuple[str, ...]]:
    """Expected batches, padded tokens and cost of every bucket, and notes on how.

    Args:
        histogram: lengths and counts; every bucket has samples, every sample fits a batch.
        limits: the batch limits.
        boundaries: K + 1 rising integers.
        model: the cost model.
        ceiling: pad batches to their bucket's longest.
    """
    parts = [histogram.between(lo, hi) for lo, hi in pairwise(boundaries)]
    if limits.batch_size_multiple_of > 1 and not ceiling:
        expected, epochs = _simulate(parts, limits, model)
        note = (
            f"figures are the mean of {epochs} simulated epochs: batch_size_multiple_of has no "
            f"exact expectation"
        )
        return expected, (note,)
    return [_expect(part, limits, model, ceiling=ceiling) for part in parts], ()


def _expect(
    part: LengthHistogram, limits: BatchLimits, model: CostModel, *, ceiling: bool
) -> Expected:
    from lengthwise.core.kernels.expectation import CEILING, bucket_cost

    support = build_support(part, limits)
    end = np.array([0, len(support)])
    support, _ = coarsen(support, limits, end, MOST_POINTS, top=ceiling)
    work = CEILING if ceiling else EVALUATION_WORK
    table = build_table(support, limits, PaddedTokens())
    batches, padded = bucket_cost(0, len(support), table, work)
    if isinstance(model, PaddedTokens):
        return batches, padded, padded
    if isinstance(model, Steps):
        return batches, padded, batches
    table = build_table(support, limits, model)
    return batches, padded, bucket_cost(0, len(support), table, work)[1]


def _simulate(
    parts: list[LengthHistogram], limits: BatchLimits, model: CostModel
) -> tuple[list[Expected], int]:
    """The mean of a few epochs packed by the plan's own kernel, from a fixed seed."""
    from lengthwise.core.packing import pack_groups
    from lengthwise.core.shuffle import shuffle_samples

    drawn, scales = _thin_out(parts)
    lengths = np.concatenate([np.repeat(part.lengths, n) for part, n in drawn])
    words = (lengths.astype(np.uint64) << np.uint64(32)) | np.arange(lengths.size, dtype=np.uint64)
    ends = np.cumsum([int(numbers.sum()) for _, numbers in drawn])
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    epochs = min(_MOST_EPOCHS, max(_LEAST_EPOCHS, 4 * _SIMULATED_SAMPLES // lengths.size))
    sums = np.zeros((len(parts), 3))
    floors = np.zeros(len(parts), np.int64)
    for epoch in range(epochs):
        shuffled = shuffle_samples(words, offsets, 0, epoch, 1)
        batches = pack_groups(shuffled, offsets, floors, limits, 1)
        group = np.searchsorted(offsets, batches.starts, side="right") - 1
        costs = evaluate_model(model, batches.sizes, batches.padded)
        values = (np.ones(len(batches)), batches.padded_tokens.astype(np.float64), costs)
        for column, value in enumerate(values):
            sums[:, column] += np.bincount(group, value, len(parts))
    sums *= (scales / epochs)[:, None]
    return [(float(row[0]), float(row[1]), float(row[2])) for row in sums], epochs


def _thin_out(
    parts: list[LengthHistogram],
) -> tuple[list[tuple[LengthHistogram, Int64Array]], Int64Array]:
    """At most about a million samples, spread over each bucket, and how many each stands for.

    A large bucket is represented by every so many-th of its samples in order of length.
    """
    total = sum(part.num_samples for part in parts)
    stride = max(1, total // _SIMULATED_SAMPLES)
    drawn, scales = [], []
    for part in parts:
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(part.counts)])
        kept = (ends + stride // 2) // stride if part.num_samples >= 64 * stride else ends
        numbers = np.diff(kept)
        drawn.append((part, numbers))
        scales.append(part.num_samples / int(numbers.sum()))
    return drawn, np.array(scales)
