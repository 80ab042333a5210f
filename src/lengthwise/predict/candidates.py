"""Settings that could be faster, in the order in which they are worth a try."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.config import BatchingConfig
from lengthwise.core.wording import percent
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lengthwise.core.cost import Objective
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits

    Labelled = tuple[str, BatchingConfig]

BUCKET_COUNTS = (6, 12, 4, 8, 16, 24, 32)
TARGETS = (0.95, 0.97, 0.99)
"""Efficiencies that a pool aims at, besides its default."""
WINDOW_SIZES = (256, 1024, 4096)
BUDGETS = (0.5, 0.75)
"""Shares of ``max_tokens``; the whole is always tried."""
ALIGNMENTS = (8, 16, 32, 64, 128)
FIXED_BUCKETS = (8, 16, 32, 4)
"""Numbers of buckets where every batch is padded to its bucket's longest."""


def families(
    hist: LengthHistogram,
    limits: BatchLimits,
    objective: Objective,
    num_buckets: int | None,
    shared: dict[str, Any],
) -> Iterator[Labelled]:
    """Ways to bring samples together within the given limits, the default first."""
    yield "pool", BatchingConfig(limits=limits, strategy="pooled", **shared)
    counts = BUCKET_COUNTS if num_buckets is None else (num_buckets,)
    for count in counts:
        best = optimize_boundaries(hist, limits, count, objective)
        if best.num_buckets == count or num_buckets is not None:
            label = f"{best.num_buckets} buckets of least time"
            yield label, BatchingConfig(limits=limits, boundaries=best.boundaries, **shared)
    least = optimize_boundaries(hist, limits, counts[0])
    label = f"{least.num_buckets} buckets of least padding"
    yield label, BatchingConfig(limits=limits, boundaries=least.boundaries, **shared)
    for target in TARGETS:
        yield (
            f"pool for {percent(target, 0)}",
            BatchingConfig(limits=limits, strategy="pooled", target_efficiency=target, **shared),
        )
    for size in WINDOW_SIZES:
        if 4 * size <= hist.num_samples:
            config = BatchingConfig(limits=limits, strategy="windowed", window_size=size, **shared)
            yield f"windows of {size:,}", config


def fixed_shapes(
    hist: LengthHistogram, limits: BatchLimits, objective: Objective, shared: dict[str, Any]
) -> Iterator[Labelled]:
    """Buckets whose batches all have one shape, but for a bucket's last: few to compile."""
    for count in FIXED_BUCKETS:
        best = optimize_boundaries(hist, limits, count, objective, pad_to_boundary=True)
        if best.num_buckets == count:
            label = f"{count} buckets, padded to their longest"
            config = BatchingConfig(
                limits=limits, boundaries=best.boundaries, pad_to_boundary=True, **shared
            )
            yield label, config


def variations(
    leaders: Sequence[Labelled], hist: LengthHistogram, *, alignments: Sequence[int]
) -> Iterator[Labelled]:
    """The leaders with smaller budgets, and with longest lengths rounded up."""
    for label, config in leaders:
        limits = config.limits
        for share in BUDGETS:
            smaller = _changed(config, hist, max_tokens=int(limits.max_tokens * share))
            if smaller is not None:
                yield f"{label}, {smaller.limits.max_tokens:,} tokens", smaller
        for multiple in alignments:
            if multiple > limits.pad_to_multiple_of:
                aligned = _changed(config, hist, pad_to_multiple_of=multiple)
                if aligned is not None:
                    yield f"{label}, padded to multiples of {multiple}", aligned


def _changed(config: BatchingConfig, hist: LengthHistogram, **fields: int) -> BatchingConfig | None:
    """The config with other limits; None where they could not hold every sample."""
    try:
        limits = replace(config.limits, **fields)
    except ConfigError:
        return None
    return replace(config, limits=limits) if hist.longest <= limits.longest_allowed else None
