"""Usual ways to choose boundaries, to compare the optimiser with.

Every baseline takes a histogram and a number of buckets and returns at most that many buckets as
rising integers, the first 0 and the last one above the longest length. Edges that coincide are
merged, so heavy ties give fewer buckets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.histogram import exact_dot
from lengthwise.core.limits import require_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lengthwise.core.bucketing import Bucketing
    from lengthwise.core.cost import Objective
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits


def equal_count(hist: LengthHistogram, num_buckets: int) -> tuple[int, ...]:
    """Buckets with equally many samples (percentiles)."""
    number = require_int("num_buckets", num_buckets, least=1)
    inner = [hist.quantile(k / number) + 1 for k in range(1, number)]
    return _boundaries(inner, hist)


def equal_tokens(hist: LengthHistogram, num_buckets: int) -> tuple[int, ...]:
    """Buckets with equally many tokens (equal mass)."""
    number = require_int("num_buckets", num_buckets, least=1)
    total, run = exact_dot(hist.lengths, hist.counts), 0
    inner: list[int] = []
    for length, count in zip(hist.lengths.tolist(), hist.counts.tolist(), strict=True):
        run += length * count
        while len(inner) + 1 < number and run * number >= total * (len(inner) + 1):
            inner.append(length + 1)
    return _boundaries(inner, hist)


def geometric(hist: LengthHistogram, num_buckets: int) -> tuple[int, ...]:
    """Edges in a constant ratio, from the shortest to the longest length."""
    number = require_int("num_buckets", num_buckets, least=1)
    edges = np.geomspace(hist.shortest, hist.longest + 1, number + 1)[1:-1]
    return _boundaries([round(float(edge)) for edge in edges], hist)


def powers_of_two(hist: LengthHistogram, num_buckets: int) -> tuple[int, ...]:
    """The largest powers of two below the longest length, the short end in one bucket."""
    number = require_int("num_buckets", num_buckets, least=1)
    top = hist.longest.bit_length()
    inner = [2**k for k in range(max(0, top - number + 1), top) if 2**k <= hist.longest]
    return _boundaries(inner, hist)


BASELINES: dict[str, Callable[[LengthHistogram, int], tuple[int, ...]]] = {
    "equal_count": equal_count,
    "equal_tokens": equal_tokens,
    "geometric": geometric,
    "powers_of_two": powers_of_two,
}


def compare_baselines(
    hist: LengthHistogram,
    limits: BatchLimits,
    num_buckets: int = 6,
    objective: Objective = "padding",
    *,
    pad_to_boundary: bool = False,
    given: Iterable[int] | None = None,
) -> dict[str, Bucketing]:
    """Evaluate every baseline, and hand-given boundaries if there are any (as ``"given"``).

    Raises:
        ConfigError: a setting that cannot work, or given boundaries that do not cover the lengths.
        DataError: there are no samples.
        OversizeError: a sample fits no batch.
    """
    from lengthwise.core.boundaries import evaluate_boundaries

    candidates = {name: make(hist, num_buckets) for name, make in BASELINES.items()}
    if given is not None:
        candidates["given"] = tuple(given)
    return {
        name: evaluate_boundaries(
            hist, limits, edges, objective=objective, pad_to_boundary=pad_to_boundary
        )
        for name, edges in candidates.items()
    }


def _boundaries(inner: list[int], hist: LengthHistogram) -> tuple[int, ...]:
    end = hist.longest + 1
    return (0, *sorted({edge for edge in inner if 0 < edge < end}), end)
