"""The histogram as the optimiser sees it: padded lengths, and what a batch there costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lengthwise.core.cost import evaluate_model
from lengthwise.errors import ConfigError, DataError, OversizeError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.cost import CostModel
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array

    Float64Array = npt.NDArray[np.float64]

MOST_POINTS = 1 << 14
"""Above this many distinct lengths, neighbours are put together; padded tokens change by < 1e-5."""
_EVERY_SIZE = 1 << 12
"""Batch sizes above this are told apart to one in this many: a larger batch counts as the next
smaller of them, which adds less than 0.05 % to the batches."""
_MOST_COSTS = 1 << 25
_CHUNK = 1 << 20


class CostTable(NamedTuple):
    """What the kernels read: counts, possible batch sizes and the cost of every legal batch.

    A *point* is a distinct padded length, by its index. ``cum[p]`` samples lie below point ``p``,
    shape (D + 1,). ``sizes`` are the batch sizes that may occur, rising, shape (L,); a batch of
    ``sizes[j]`` holds no point at or above ``fits[j]``. A batch of ``sizes[j]`` samples whose
    longest is point ``p`` costs ``costs[rows[j] + p]``.
    """

    cum: Int64Array
    sizes: Int64Array
    fits: Int64Array
    rows: Int64Array
    costs: Float64Array


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Points in rising order, each a distinct padded length or several neighbours put together.

    Attributes:
        padded: tokens that a batch with this longest is padded to; int64, shape (D,). For
            neighbours put together, their mean.
        reach: the largest padded length of the point, which decides what fits; int64, (D,).
        tops: the longest real length of the point, in tokens; int64, (D,).
        cum: samples below each point; int64, (D + 1,).
    """

    padded: Int64Array
    reach: Int64Array
    tops: Int64Array
    cum: Int64Array

    def __len__(self) -> int:
        """Number of points."""
        return int(self.padded.size)


def build_support(
    histogram: LengthHistogram, limits: BatchLimits, *, most_split: int = 0
) -> Support:
    """One point for every distinct padded length.

    Args:
        histogram: lengths and counts.
        limits: the batch limits.
        most_split: with at most this many distinct lengths, one point for each of them instead,
            so that an edge may part lengths that are padded alike.

    Raises:
        DataError: there are no samples.
        OversizeError: a sample fits no batch.
    """
    if not len(histogram):
        raise DataError("there are no samples, so there is nothing to put into buckets")
    longest = histogram.longest
    if longest > limits.longest_allowed:
        over = histogram.between(limits.longest_allowed + 1, longest + 1).num_samples
        raise OversizeError(
            f"{over:,} samples are longer than a batch may be ({limits.longest_allowed:,} tokens "
            f"under max_tokens={limits.max_tokens:,}); the longest has {longest:,}. Raise "
            f"max_tokens, or leave them out or cut them first: hist.between(0, "
            f"{limits.longest_allowed + 1}), or the oversize policy of the plan."
        )
    padded = limits.padded_lengths(histogram.lengths)
    ends = np.arange(padded.size)
    if padded.size > most_split:
        ends = np.append(np.flatnonzero(np.diff(padded)), padded.size - 1)
    cum = np.concatenate([np.zeros(1, np.int64), np.cumsum(histogram.counts)[ends]])
    return Support(padded[ends], padded[ends], histogram.lengths[ends], cum)


def cut_support(support: Support, ends: Int64Array, *, top: bool) -> Support:
    """Put the points between two neighbouring ``ends`` together.

    Args:
        support: the points.
        ends: index one past each new point's last old point, rising, last one ``len(support)``.
        top: pad to the largest of the points (exact where batches are padded to their bucket's
            top), not to their mean weighted by samples (nearly exact where to their own longest).
    """
    last = ends - 1
    cum = np.concatenate([np.zeros(1, np.int64), support.cum[ends]])
    padded = support.reach[last]
    if not top:
        weighted = support.padded.astype(np.float64) * np.diff(support.cum)
        sums = np.add.reduceat(weighted, np.concatenate([np.zeros(1, np.int64), ends[:-1]]))
        padded = np.rint(sums / np.diff(cum)).astype(np.int64)
    return Support(padded, support.reach[last], support.tops[last], cum)


def spread_cuts(support: Support, number: int) -> Int64Array:
    """About ``number`` edges between points, denser where there are more samples or tokens.

    Half of them lie at equal steps of samples, half at equal steps of tokens; the first is 0 and
    the last ``len(support)``. Integers only, so that every machine cuts alike.
    """
    size = len(support)
    if size <= number:
        return np.arange(size + 1)
    counts = np.diff(support.cum)
    largest = max(1, int(support.padded[-1]) >> 20)  # keeps the sums inside int64
    tokens = np.cumsum(counts * np.maximum(1, support.padded // largest))
    half = max(1, number // 2)
    steps = np.arange(1, half + 1)
    places = [np.zeros(1, np.int64), np.full(1, size)]
    for sums in (support.cum[1:], tokens):
        whole, rest = divmod(int(sums[-1]), half)
        places.append(np.searchsorted(sums, whole * steps + rest * steps // half) + 1)
    return np.unique(np.minimum(np.concatenate(places), size))


def threshold_cuts(support: Support, limits: BatchLimits) -> Int64Array:
    """Edges where the batch size that fits changes: putting points together keeps these."""
    most = limits.max_tokens // support.reach
    if limits.max_batch_size is not None:
        most = np.minimum(most, limits.max_batch_size)
    return np.flatnonzero(np.diff(most)) + 1


def coarsen(
    support: Support, limits: BatchLimits, edges: Int64Array, most: int, *, top: bool
) -> tuple[Support, Int64Array]:
    """At most about ``most`` points, and where the given edges lie among them."""
    if len(support) <= most:
        return support, edges
    inner = np.union1d(threshold_cuts(support, limits), spread_cuts(support, most))
    ends = np.union1d(inner, edges)
    ends = ends[ends > 0]
    return cut_support(support, ends, top=top), np.searchsorted(
        np.concatenate([np.zeros(1, np.int64), ends]), edges
    )


def allowed_sizes(support: Support, limits: BatchLimits) -> Int64Array:
    """Sizes that a batch may have, rising; above a few thousand, not every one.

    Those that a bucket of a single length has are always among them.
    """
    most = min(limits.max_tokens // int(support.reach[0]), int(support.cum[-1]))
    if limits.max_batch_size is not None:
        most = min(most, limits.max_batch_size)
    sizes = np.arange(1, min(most, _EVERY_SIZE) + 1)
    if most > _EVERY_SIZE:
        larger = [_EVERY_SIZE]
        while larger[-1] < most:
            larger.append(larger[-1] + -(-larger[-1] // _EVERY_SIZE))
        full = np.minimum(limits.max_tokens // support.reach, most)
        sizes = np.unique(np.concatenate([sizes, np.minimum(larger, most), full]))
    step = limits.batch_size_multiple_of
    return np.unique(np.where(sizes < step, sizes, sizes // step * step))


def build_table(support: Support, limits: BatchLimits, model: CostModel) -> CostTable:
    """Evaluate a cost model for every legal batch.

    Raises:
        ConfigError: the model returns no proper costs, or there are too many legal batches.
    """
    sizes = allowed_sizes(support, limits)
    fits = np.searchsorted(support.reach, limits.max_tokens // sizes, side="right")
    rows = np.cumsum(fits) - fits
    number = int(fits.sum())
    if number > _MOST_COSTS:
        raise ConfigError(
            f"batches of up to {sizes[-1]:,} samples fit max_tokens={limits.max_tokens:,}: "
            f"{number:,} kinds of batch are too many to weigh; set max_batch_size"
        )
    costs = np.empty(number)
    first = 0
    while first < sizes.size:
        last = max(first + 1, int(np.searchsorted(rows, rows[first] + _CHUNK)))
        batch_size = np.repeat(sizes[first:last], fits[first:last])
        starts = np.repeat(rows[first:last], fits[first:last])
        place = np.arange(rows[first], rows[first] + batch_size.size) - starts
        costs[rows[first] : rows[first] + batch_size.size] = evaluate_model(
            model, batch_size, support.padded[place]
        )
        first = last
    return CostTable(support.cum, sizes, fits.astype(np.int64), rows.astype(np.int64), costs)
