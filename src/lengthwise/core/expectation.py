"""What greedy packing of each bucket is expected to cost in an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.cost import PaddedTokens, Steps, evaluate_model
from lengthwise.core.support import MOST_POINTS, build_support, build_table, coarsen

if TYPE_CHECKING:
    from lengthwise.core.cost import CostModel
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.core.support import CostTable, Support

    Expected = tuple[float, float, float]

EVALUATION_WORK = 100_000
"""Samples times sizes up to which a bucket is followed sample by sample."""
_SIMULATED_SAMPLES = 1 << 20
_MOST_EPOCHS = 64
_LEAST_EPOCHS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """A histogram prepared once, to evaluate any boundaries on it.

    Attributes:
        histogram: lengths and counts; every sample fits a batch.
        limits: the batch limits.
        model: what the cost is.
        ceiling: whether batches are padded to their bucket's longest.
        support: the points of the whole histogram.
        tables: padded tokens and cost of every legal batch over these points; None where the
            points are too many and are put together anew for given boundaries.
    """

    histogram: LengthHistogram
    limits: BatchLimits
    model: CostModel
    ceiling: bool
    support: Support
    tables: tuple[CostTable, CostTable] | None

    @classmethod
    def build(
        cls, histogram: LengthHistogram, limits: BatchLimits, model: CostModel, *, ceiling: bool
    ) -> Evaluator:
        """Prepare a histogram.

        Raises:
            DataError: there are no samples.
            OversizeError: a sample fits no batch.
        """
        support = build_support(histogram, limits)
        tables = None
        if len(support) <= MOST_POINTS:
            tables = _tables(support, limits, model)
        return cls(histogram, limits, model, ceiling, support, tables)

    def expect(self, boundaries: tuple[int, ...]) -> tuple[list[Expected], tuple[str, ...]]:
        """Expected batches, padded tokens and cost of every bucket, and notes on how.

        Args:
            boundaries: K + 1 rising integers; every bucket holds samples.
        """
        if self.limits.batch_size_multiple_of > 1 and not self.ceiling:
            parts = [self.histogram.between(lo, hi) for lo, hi in pairwise(boundaries)]
            expected, epochs = _simulate(parts, self.limits, self.model)
            note = (
                f"figures are the mean of {epochs} simulated epochs: batch_size_multiple_of has "
                f"no exact expectation"
            )
            return expected, (note,)
        cuts = np.searchsorted(self.support.tops, np.asarray(boundaries, np.int64))
        lengths = np.searchsorted(self.histogram.lengths, np.asarray(boundaries, np.int64))
        below = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.histogram.counts)])[lengths]
        if not np.array_equal(self.support.cum[cuts], below):  # an edge inside a padded length
            parts = [self.histogram.between(lo, hi) for lo, hi in pairwise(boundaries)]
            return [self._expect_apart(part) for part in parts], ()
        support, tables = self.support, self.tables
        if tables is None:
            support, cuts = coarsen(support, self.limits, cuts, MOST_POINTS, top=self.ceiling)
            tables = _tables(support, self.limits, self.model)
        return [self._bucket(int(a), int(b), tables) for a, b in pairwise(cuts)], ()

    def _expect_apart(self, part: LengthHistogram) -> Expected:
        support = build_support(part, self.limits)
        whole = np.array([0, len(support)])
        support, _ = coarsen(support, self.limits, whole, MOST_POINTS, top=self.ceiling)
        return self._bucket(0, len(support), _tables(support, self.limits, self.model))

    def _bucket(self, a: int, b: int, tables: tuple[CostTable, CostTable]) -> Expected:
        from lengthwise.core.kernels.expectation import CEILING, bucket_cost

        work = CEILING if self.ceiling else EVALUATION_WORK
        batches, padded = bucket_cost(a, b, tables[0], work)
        if isinstance(self.model, PaddedTokens):
            return batches, padded, padded
        if isinstance(self.model, Steps):
            return batches, padded, batches
        return batches, padded, bucket_cost(a, b, tables[1], work)[1]


def _tables(support: Support, limits: BatchLimits, model: CostModel) -> tuple[CostTable, CostTable]:
    padding = build_table(support, limits, PaddedTokens())
    if isinstance(model, (PaddedTokens, Steps)):
        return padding, padding
    return padding, build_table(support, limits, model)


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
