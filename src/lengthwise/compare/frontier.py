"""How much diversity each family of plans gives up for how much efficiency."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.compare.measure import measure_strategy
from lengthwise.core.config import BatchingConfig
from lengthwise.core.curve import optimize_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array

MOST_SAMPLES = 1_000_000
"""A larger data set's frontier is measured on an even thinning of it: repeats are then more
frequent by that factor in every family alike."""

BUCKET_COUNTS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WINDOW_SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
INNER_WINDOW_SIZES = (32, 64, 128, 256, 512, 1024)
TARGETS = (0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One setting of one family.

    Attributes:
        family: ``"bucketed"``, ``"windowed"``, ``"windowed in buckets"`` or ``"pooled"``.
        parameter: number of buckets, window size, or target efficiency.
        efficiency: real / padded tokens.
        repeat_rate: share of pairs that meet again in the next epoch.
        num_batches: batches an epoch.
        design_effect: of length, for an optimiser step.
    """

    family: str
    parameter: float
    efficiency: float
    repeat_rate: float
    num_batches: int
    design_effect: float

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)


def thin(lengths: Int64Array) -> Int64Array:
    """At most a million of the lengths, evenly over the sorted data set."""
    step = -(-lengths.size // MOST_SAMPLES)
    return lengths if step == 1 else np.sort(lengths)[::step]


def measure_frontier(
    lengths: Int64Array,
    histogram: LengthHistogram,
    limits: BatchLimits,
    shared: dict[str, Any],
    num_replicas: int,
    inner: tuple[int, ...],
    report: Callable[[str], None],
) -> tuple[FrontierPoint, ...]:
    """Measure every family over its parameter.

    Args:
        lengths: tokens of each sample, at most :data:`MOST_SAMPLES` of them.
        histogram: the same, counted; without oversize samples.
        limits: the batch limits.
        shared: fields that all configs have in common.
        num_replicas: replicas of a step.
        inner: boundaries of the family that has windows inside buckets.
        report: called with a few words after each point.
    """
    points = []
    for family, parameter, fields in _settings(lengths.size, histogram, limits, inner):
        config = BatchingConfig(limits=limits, **shared, **fields)
        result = measure_strategy(lengths, config, family, num_replicas)
        assert result.repeat_rate is not None
        assert result.design_effect is not None
        points.append(
            FrontierPoint(
                family,
                parameter,
                result.efficiency,
                result.repeat_rate,
                result.num_batches,
                result.design_effect,
            )
        )
        report(f"{family} {parameter:g}")
    return tuple(points)


def count_settings(num_samples: int, num_distinct: int) -> int:
    """How many points the frontier has."""
    fitting = [sum(1 for size in sizes if 2 * size <= num_samples) for sizes in _WINDOWS]
    buckets = sum(1 for count in BUCKET_COUNTS if count <= num_distinct)
    return buckets + sum(fitting) + len(TARGETS)


_WINDOWS = (WINDOW_SIZES, INNER_WINDOW_SIZES)


def _settings(
    num_samples: int, histogram: LengthHistogram, limits: BatchLimits, inner: tuple[int, ...]
) -> Iterator[tuple[str, float, dict[str, Any]]]:
    counts = [count for count in BUCKET_COUNTS if count <= len(histogram)]
    curve = optimize_curve(histogram, limits, max_buckets=max(counts, default=1))
    for count in counts:
        yield "bucketed", count, {"boundaries": curve[count].boundaries}
    for size in WINDOW_SIZES:
        if 2 * size <= num_samples:
            yield "windowed", size, {"strategy": "windowed", "window_size": size}
    for size in INNER_WINDOW_SIZES:
        if 2 * size <= num_samples:
            fields = {"strategy": "windowed", "window_size": size, "boundaries": inner}
            yield "windowed in buckets", size, fields
    for target in TARGETS:
        yield "pooled", target, {"strategy": "pooled", "target_efficiency": target}
