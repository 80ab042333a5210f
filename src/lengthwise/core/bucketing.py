"""Boundaries as a value: what they must satisfy, which bucket a length is in, what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from lengthwise.core.histogram import LengthHistogram


@dataclass(frozen=True, slots=True)
class BucketStats:
    """One bucket ``[lo, hi)`` and what is expected of it in an epoch.

    Attributes:
        lo: shortest length that belongs to it, in tokens.
        hi: one above the longest length that belongs to it, in tokens.
        num_samples: samples in it.
        mean_length: their mean length, in tokens.
        batch_size: expected samples of a batch.
        num_batches: expected batches.
        padded_tokens: expected padded tokens of all batches.
        efficiency: real tokens over padded tokens.
    """

    lo: int
    hi: int
    num_samples: int
    mean_length: float
    batch_size: float
    num_batches: float
    padded_tokens: float
    efficiency: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the attributes' names."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class SearchReport:
    """How the boundaries were found, and what is known about better ones.

    All gains are shares of the cost found: 0.001 is a tenth of a percent of it.

    Attributes:
        num_edges: candidate edges of the finest grid that the dynamic programme searched.
        exhaustive: whether these were all edges there are; then no boundaries cost less.
        refinement_gain: what moving edges to single tokens won over the best on that grid.
        finer_grid_gain: what halving the spacing of the grid won, both ends refined. 0 if it won
            nothing: an estimate of the gap to the best boundaries there are.
    """

    num_edges: int
    exhaustive: bool
    refinement_gain: float
    finer_grid_gain: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the attributes' names."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Bucketing:
    """Boundaries, and what an epoch packed inside them is expected to cost.

    Attributes:
        boundaries: K + 1 rising integers; bucket k holds ``boundaries[k] <= length <
            boundaries[k + 1]``. No bucket is empty.
        efficiency: real tokens over expected padded tokens.
        utilization: real tokens over expected batches times ``max_tokens``.
        num_batches: expected batches of an epoch.
        padded_tokens: expected padded tokens of an epoch.
        real_tokens: real tokens; exact.
        objective: what ``cost`` measures: ``"padding"``, ``"steps"``, ``"seconds"`` or a name.
        cost: expected cost of an epoch under the objective.
        buckets: one record a bucket, shortest first.
        search: how the boundaries were found; None where they were given.
        notes: what was changed or is worth knowing, in words.
    """

    boundaries: tuple[int, ...]
    efficiency: float
    utilization: float
    num_batches: float
    padded_tokens: float
    real_tokens: int
    objective: str
    cost: float
    buckets: tuple[BucketStats, ...]
    search: SearchReport | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_buckets(self) -> int:
        """Number of buckets."""
        return len(self.boundaries) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the attributes' names."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["boundaries"] = list(self.boundaries)
        values["buckets"] = [bucket.to_dict() for bucket in self.buckets]
        values["search"] = None if self.search is None else self.search.to_dict()
        values["notes"] = list(self.notes)
        return values


def validate_boundaries(
    boundaries: Iterable[int] | npt.NDArray[Any], shortest: int, longest: int
) -> tuple[int, ...]:
    """Return boundaries as a tuple of ints, if every length from shortest to longest has a bucket.

    Args:
        boundaries: K + 1 integers.
        shortest: shortest length to cover, in tokens.
        longest: longest length to cover, in tokens.

    Raises:
        ConfigError: not integers, fewer than two, not strictly rising, or not covering.
    """
    edges = tuple(require_int("a boundary", edge, least=0, most=2**62) for edge in boundaries)
    if len(edges) < 2:
        raise ConfigError(f"boundaries need at least two integers (one bucket), got {list(edges)}")
    for lower, upper in pairwise(edges):
        if upper <= lower:
            raise ConfigError(
                f"boundaries must rise strictly, but {upper:,} follows {lower:,} in {list(edges)}"
            )
    if edges[0] > shortest:
        raise ConfigError(
            f"the first boundary is {edges[0]:,}, but the shortest sample has {shortest:,} tokens "
            f"and would be in no bucket; begin with 0"
        )
    if edges[-1] <= longest:
        raise ConfigError(
            f"the last boundary is {edges[-1]:,}, but the longest sample has {longest:,} tokens; "
            f"buckets are half-open, so end with at least {longest + 1}"
        )
    return edges


def assign_buckets(
    lengths: npt.ArrayLike, boundaries: Iterable[int] | npt.NDArray[Any]
) -> npt.NDArray[np.int32]:
    """The bucket of every length: k where ``boundaries[k] <= length < boundaries[k + 1]``.

    Args:
        lengths: integers, shape (N,).
        boundaries: K + 1 strictly rising integers that cover all lengths.

    Returns:
        int32, shape (N,), values in ``[0, K)``.

    Raises:
        ConfigError: the boundaries do not cover the lengths, or are no boundaries.
    """
    values = np.asarray(lengths, np.int64)
    if values.size == 0:
        return np.empty(0, np.int32)
    edges = validate_boundaries(boundaries, int(values.min()), int(values.max()))
    places = np.searchsorted(np.asarray(edges, np.int64), values, side="right") - 1
    return places.astype(np.int32)


def without_empty_buckets(
    boundaries: tuple[int, ...], histogram: LengthHistogram
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Boundaries without the buckets that hold no sample, and a note if there were any.

    An empty bucket's range goes to the bucket above it; above the last full one it is cut off.
    """
    lengths = histogram.lengths
    places = np.searchsorted(lengths, np.asarray(boundaries, np.int64))
    full = np.flatnonzero(np.diff(places) > 0)
    kept = (boundaries[0], *(boundaries[k + 1] for k in full.tolist()))
    empty = [
        f"[{lo:,}, {hi:,})"
        for k, (lo, hi) in enumerate(pairwise(boundaries))
        if places[k + 1] == places[k]
    ]
    if not empty:
        return kept, ()
    word = "bucket" if len(empty) == 1 else "buckets"
    return kept, (f"removed {len(empty)} empty {word}: {', '.join(empty)}",)
