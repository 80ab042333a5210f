"""How many samples have which length: exact, mergeable, small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.errors import BadLengthError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

_BARS = " ▁▂▃▄▅▆▇█"
_DENSE_LIMIT = 1 << 22
"""Lengths below this are counted with one array slot each; above it, by sorting."""


@dataclass(frozen=True, slots=True, eq=False)
class LengthHistogram:
    """Exact counts per distinct length.

    ``hist_a + hist_b`` merges, in any order and grouping, so parts of a data set can be counted
    apart. All totals are exact Python integers.

    Attributes:
        lengths: distinct lengths in tokens, strictly increasing, all >= 1; int64, shape (D,).
        counts: samples of each length, all >= 1; int64, shape (D,).
    """

    lengths: Int64Array
    counts: Int64Array

    def __post_init__(self) -> None:
        """Check the invariants and make the arrays read-only."""
        lengths, counts = _int64(self.lengths, "lengths"), _int64(self.counts, "counts")
        if lengths.shape != counts.shape or lengths.ndim != 1:
            raise DataError(
                f"lengths and counts must be one-dimensional and of one shape, "
                f"got {lengths.shape} and {counts.shape}"
            )
        if lengths.size and (int(lengths[0]) < 1 or bool(np.any(np.diff(lengths) <= 0))):
            raise DataError("histogram lengths must be strictly increasing and at least 1")
        if counts.size and int(counts.min()) < 1:
            raise DataError("histogram counts must be at least 1; leave absent lengths out")
        for name, array in (("lengths", lengths), ("counts", counts)):
            frozen = array.copy()
            frozen.setflags(write=False)
            object.__setattr__(self, name, frozen)

    @classmethod
    def from_lengths(cls, lengths: npt.ArrayLike) -> LengthHistogram:
        """Count an array of lengths.

        Args:
            lengths: integers >= 1, shape (N,), any integer dtype.

        Raises:
            BadLengthError: a length is not a whole number of at least 1; names its position.
        """
        values = check_lengths(lengths)
        if values.size == 0:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        if int(values.max()) < _DENSE_LIMIT:
            dense = np.bincount(values)
            present = np.flatnonzero(dense)
            return cls(present.astype(np.int64), dense[present].astype(np.int64))
        distinct, counts = np.unique(values, return_counts=True)
        return cls(distinct, counts.astype(np.int64))

    @classmethod
    def from_counts(cls, lengths: Sequence[int], counts: Sequence[int]) -> LengthHistogram:
        """Build from (length, count) pairs in any order; pairs of one length add up, zeros go."""
        values, numbers = _int64(lengths, "lengths"), _int64(counts, "counts")
        if values.shape != numbers.shape:
            raise DataError(f"{values.size:,} lengths but {numbers.size:,} counts")
        if numbers.size and int(numbers.min()) < 0:
            row = int(np.argmin(numbers))
            raise DataError(f"count at position {row:,} is negative ({int(numbers[row]):,})")
        distinct, inverse = np.unique(values, return_inverse=True)
        totals = np.zeros(distinct.size, np.int64)
        np.add.at(totals, inverse.reshape(-1), numbers)
        keep = totals > 0
        return cls(distinct[keep], totals[keep])

    @classmethod
    def merge(cls, parts: Iterable[LengthHistogram]) -> LengthHistogram:
        """Merge any number of histograms; no parts give an empty one."""
        parts = list(parts)
        if not parts:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls.from_counts(
            np.concatenate([part.lengths for part in parts]),  # type: ignore[arg-type]
            np.concatenate([part.counts for part in parts]),  # type: ignore[arg-type]
        )

    def __add__(self, other: LengthHistogram) -> LengthHistogram:
        """Merge with another histogram."""
        if not isinstance(other, LengthHistogram):
            return NotImplemented
        return LengthHistogram.merge((self, other))

    def __eq__(self, other: object) -> bool:
        """Equal if every length has the same count."""
        if not isinstance(other, LengthHistogram):
            return NotImplemented
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(
            self.counts, other.counts
        )

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        """Number of distinct lengths."""
        return int(self.lengths.size)

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    @property
    def num_tokens(self) -> int:
        """Sum of all lengths, exact at any size."""
        return exact_dot(self.lengths, self.counts)

    @property
    def shortest(self) -> int:
        """Shortest length; raises DataError when empty."""
        return int(self._nonempty().lengths[0])

    @property
    def longest(self) -> int:
        """Longest length; raises DataError when empty."""
        return int(self._nonempty().lengths[-1])

    @property
    def mean(self) -> float:
        """Mean length in tokens."""
        return self._nonempty().num_tokens / self.num_samples

    @property
    def std(self) -> float:
        """Standard deviation of length (population), in tokens."""
        deviations = self.lengths - self.mean
        return float(np.sqrt(np.dot(self.counts, deviations**2) / self.num_samples))

    def quantile(self, q: float) -> int:
        """The smallest length such that at least a share ``q`` of samples is no longer.

        Args:
            q: share in [0, 1]; 0 gives the shortest and 1 the longest length.
        """
        if not 0.0 <= q <= 1.0:
            raise DataError(f"a quantile must be in [0, 1], got {q}")
        cumulative = np.cumsum(self._nonempty().counts)
        return int(self.lengths[np.searchsorted(cumulative / cumulative[-1], q)])

    def between(self, lo: int, hi: int) -> LengthHistogram:
        """The part with ``lo <= length < hi``."""
        first, last = np.searchsorted(self.lengths, [lo, hi])
        return LengthHistogram(self.lengths[first:last], self.counts[first:last])

    def to_lengths(self) -> Int64Array:
        """All lengths in rising order; int64, shape (num_samples,)."""
        return np.repeat(self.lengths, self.counts)

    def binned(self, num_bins: int) -> Int64Array:
        """Samples in ``num_bins`` equal-width bins from shortest to longest; shape (num_bins,)."""
        edges = np.linspace(self.shortest, self.longest + 1, num_bins + 1)
        places = np.searchsorted(edges, self.lengths, side="right") - 1
        totals = np.zeros(num_bins, np.int64)
        np.add.at(totals, np.clip(places, 0, num_bins - 1), self.counts)
        return totals

    def sparkline(self, width: int = 60) -> str:
        """The distribution as one line of block characters, shortest to the left."""
        bins = self.binned(width)
        heights = np.ceil(bins / bins.max() * (len(_BARS) - 1)).astype(int)
        return "".join(_BARS[height] for height in heights)

    def _nonempty(self) -> LengthHistogram:
        if not self.lengths.size:
            raise DataError("the histogram is empty: there are no samples")
        return self


def exact_dot(values: Int64Array, weights: Int64Array) -> int:
    """``sum(values * weights)`` as an exact Python int, whatever its size."""
    if values.size == 0:
        return 0
    bound = int(values.max()) * int(weights.max()) * values.size
    if bound < 2**62:
        return int(np.dot(values, weights))
    return sum(int(v) * int(w) for v, w in zip(values, weights, strict=True))


def exact_sum(values: Int64Array) -> int:
    """Sum of values from 0 to ``2**62`` as an exact Python int, whatever its size."""
    if values.size == 0:
        return 0
    if int(values.max()) * values.size < 2**62:
        return int(values.sum())
    return (int((values >> 31).sum()) << 31) + int((values & (2**31 - 1)).sum())


def check_lengths(lengths: npt.ArrayLike) -> Int64Array:
    """Return ``lengths`` as int64 of shape (N,), or say which entry is no length.

    Floating-point input is accepted where every value is a whole number.

    Raises:
        BadLengthError: names the first offending position and value.
    """
    array = np.asarray(lengths)
    if array.ndim != 1:
        raise BadLengthError(f"lengths must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iuf":
        first = array[:1].tolist()[0]
        raise BadLengthError(
            f"lengths must be integers, got an array of {array.dtype}; the first is {first!r}"
        )
    if array.dtype.kind in "iu" and array.min() >= 1 and array.max() <= 2**53:
        return array.astype(np.int64, copy=False)
    with np.errstate(invalid="ignore"):
        whole = array if array.dtype.kind in "iu" else np.trunc(array)
        bad = (whole != array) | (array < 1) | (array > 2**53)
    if bool(bad.any()):
        row = int(np.argmax(bad))
        raise BadLengthError(
            f"length at position {row:,} is {array[row].item()!r}; every length must be a whole "
            f"number of at least 1 ({int(bad.sum()):,} of {array.size:,} are not)"
        )
    return array.astype(np.int64, copy=False)


def _int64(values: object, name: str) -> Int64Array:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise DataError(f"histogram {name} must be integers, got {array.dtype}")
    return array.astype(np.int64, copy=False)
