"""Boundaries learned from the first samples of a stream, and a watch on whether they still fit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import LengthwiseWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lengthwise.core.limits import BatchLimits
    from lengthwise.loader.streaming.config import StreamingConfig

LEAST_DRIFT = 0.1
"""Distances below this are not worth a warning, however sure they are."""
_CRITICAL = 1.95
"""Two windows of one distribution are further apart than this times ``sqrt(1/n + 1/m)`` in one
case of a thousand (Smirnov, 1939)."""


def learn_boundaries(
    lengths: Sequence[int], limits: BatchLimits, num_buckets: int
) -> tuple[int, ...]:
    """The best boundaries for these lengths, the last one raised to the longest length allowed.

    Args:
        lengths: of the first samples, each at most ``limits.longest_allowed``.
        limits: the batch limits.
        num_buckets: at most this many buckets.
    """
    histogram = LengthHistogram.from_lengths(np.asarray(lengths, np.int64))
    edges = optimize_boundaries(histogram, limits, num_buckets=num_buckets).boundaries
    return (*edges[:-1], limits.longest_allowed + 1)


@dataclass(slots=True)
class Learned:
    """Boundaries learned from a stream; kept from one epoch to the next.

    Attributes:
        boundaries: K + 1 rising integers, or ``None`` while nothing is learned.
        histogram: the lengths they were learned from.
    """

    boundaries: tuple[int, ...] | None = None
    histogram: LengthHistogram | None = None

    def learn(self, lengths: Sequence[int], config: StreamingConfig) -> None:
        """Find the best boundaries for these lengths; see :func:`learn_boundaries`."""
        assert config.num_buckets is not None
        self.boundaries = learn_boundaries(lengths, config.limits, config.num_buckets)
        self.histogram = LengthHistogram.from_lengths(np.asarray(lengths, np.int64))

    def to_dict(self) -> dict[str, Any] | None:
        """Plain lists; ``None`` while nothing is learned."""
        if self.boundaries is None or self.histogram is None:
            return None
        return {
            "boundaries": list(self.boundaries),
            "lengths": self.histogram.lengths.tolist(),
            "counts": self.histogram.counts.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Learned:
        """Of :meth:`to_dict`'s form."""
        if values is None:
            return cls()
        histogram = LengthHistogram.from_counts(values["lengths"], values["counts"])
        return cls(tuple(values["boundaries"]), histogram)


def distance(first: LengthHistogram, second: LengthHistogram) -> float:
    """The largest difference between the two cumulative shares: Kolmogorov and Smirnov's distance.

    From 0 (alike) to 1 (no length in common, one all below the other).
    """
    lengths = np.union1d(first.lengths, second.lengths)
    shares = []
    for histogram in (first, second):
        below = np.concatenate(([0], np.cumsum(histogram.counts)))
        places = np.searchsorted(histogram.lengths, lengths, side="right")
        shares.append(below[places] / histogram.num_samples)
    return float(np.max(np.abs(shares[0] - shares[1])))


class DriftWatch:
    """Compares every window of samples with those that the boundaries were learned from.

    Warns once a window, where the distance is above 0.1 and above what one distribution would
    show in one window of a thousand.

    Args:
        learned: lengths the boundaries were learned from.
        window: samples in a window.
    """

    def __init__(self, learned: LengthHistogram, window: int) -> None:
        """No sample is seen yet."""
        self.learned = learned
        self._window = window
        self._recent: list[int] = []
        chance = _CRITICAL * sqrt(1 / learned.num_samples + 1 / window)
        self._threshold = max(LEAST_DRIFT, chance)

    def add(self, length: int) -> None:
        """See one more sample; warn at the end of a window that has drifted away."""
        self._recent.append(length)
        if len(self._recent) < self._window:
            return
        recent = LengthHistogram.from_lengths(np.asarray(self._recent, np.int64))
        self._recent.clear()
        found = distance(self.learned, recent)
        if found > self._threshold:
            warnings.warn(
                f"lengths have drifted since the boundaries were learned: the last "
                f"{recent.num_samples:,} samples (median {recent.quantile(0.5):,} tokens) are "
                f"{found:.2f} away from the first {self.learned.num_samples:,} (median "
                f"{self.learned.quantile(0.5):,}), where 0 is alike and 1 is disjoint. Batches "
                f"stay within the limits but are padded more. Shuffle the stream, give "
                f"boundaries=[...] found on all of it, or use no buckets.",
                LengthwiseWarning,
                stacklevel=2,
            )
