"""Every strategy side by side on one data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.compare.frontier import FrontierPoint, count_settings, measure_frontier, thin
from lengthwise.compare.measure import StrategyResult, measure_strategy
from lengthwise.compare.recommend import reason_for, recommend
from lengthwise.core.baselines import compare_baselines
from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.config import DEFAULT_WINDOW, BatchingConfig, Oversize
from lengthwise.core.file_format import COMPARISON
from lengthwise.core.histogram import LengthHistogram, check_lengths
from lengthwise.core.limits import BatchLimits, Int64Array
from lengthwise.core.prepare import find_oversize
from lengthwise.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from lengthwise.core.bucketing import Bucketing

    Progress = Callable[[int, int, str], None]

INNER_WINDOW = 256


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Comparison:
    """Strategies side by side, the frontier, and the histogram with its buckets.

    Attributes:
        strategies: by name; ``packed`` is the bound of packing without padding.
        frontier: every family over its parameter; empty if it was not asked for.
        frontier_samples: samples that the frontier was measured on.
        bucketing: the best boundaries for ``num_buckets``.
        baselines: other ways to choose as many boundaries, evaluated.
        histogram: the lengths that were planned.
        limits: the batch limits.
        num_replicas: replicas of a step.
        accumulation_steps: steps of an optimiser step.
        num_oversize: samples longer than a batch may be.
        seed: the seed of all plans.
        recommended: name of the strategy to use.
        reason: why, in words.
    """

    strategies: dict[str, StrategyResult]
    frontier: tuple[FrontierPoint, ...]
    frontier_samples: int
    bucketing: Bucketing
    baselines: dict[str, Bucketing]
    histogram: LengthHistogram
    limits: BatchLimits
    num_replicas: int
    accumulation_steps: int
    num_oversize: int
    seed: int
    recommended: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON and for the report."""
        limits = {name: getattr(self.limits, name) for name in BatchLimits.__dataclass_fields__}
        return {
            **COMPARISON.stamp(),
            "num_samples": self.histogram.num_samples,
            "real_tokens": self.histogram.num_tokens,
            "limits": limits,
            "num_replicas": self.num_replicas,
            "accumulation_steps": self.accumulation_steps,
            "num_oversize": self.num_oversize,
            "seed": self.seed,
            "strategies": {name: result.to_dict() for name, result in self.strategies.items()},
            "recommended": self.recommended,
            "reason": self.reason,
            "frontier": [point.to_dict() for point in self.frontier],
            "frontier_samples": self.frontier_samples,
            "bucketing": self.bucketing.to_dict(),
            "baselines": {
                name: {
                    "boundaries": list(found.boundaries),
                    "efficiency": found.efficiency,
                    "num_batches": found.num_batches,
                }
                for name, found in self.baselines.items()
            },
            "histogram": {
                "lengths": self.histogram.lengths.tolist(),
                "counts": self.histogram.counts.tolist(),
            },
        }


def compare_strategies(
    lengths: npt.ArrayLike,
    limits: BatchLimits,
    num_buckets: int = 6,
    *,
    boundaries: Sequence[int] | None = None,
    num_replicas: int = 8,
    accumulation_steps: int = 1,
    seed: int = 0,
    oversize: Oversize = "error",
    frontier: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Plan two epochs with every strategy and measure efficiency and diversity.

    Args:
        lengths: tokens of each sample, shape (N,).
        limits: what a batch may hold.
        num_buckets: buckets of the bucketed strategies.
        boundaries: boundaries of your own, to stand beside the others.
        num_replicas: batches that run at the same time. Default 8, one machine of eight GPUs.
        accumulation_steps: steps of an optimiser step.
        seed: of all plans.
        oversize: what happens to samples that fit no batch.
        frontier: measure every family over its parameter as well.
        progress: called as ``progress(done, total, what)``.

    Raises:
        OversizeError, PlanError, ConfigError: see :class:`~lengthwise.core.plan.Planner`.
    """
    values = check_lengths(lengths)
    if values.size == 0:
        raise PlanError("there are no samples to compare strategies on: lengths is empty")
    shared = {
        "accumulation_steps": accumulation_steps,
        "seed": seed,
        "oversize": oversize,
    }
    histogram, num_oversize = plannable(values, limits, oversize)
    steps = _Steps(progress)
    best = optimize_boundaries(histogram, limits, num_buckets=num_buckets)
    configs = strategy_configs(limits, best, boundaries, shared, int(values.size))
    total = len(configs) + 1
    sample = thin(values)
    if frontier:
        total += count_settings(sample.size, len(histogram))
    steps.begin(total, "boundaries")
    results: dict[str, StrategyResult] = {}
    for name, (label, config) in configs.items():
        results[name] = measure_strategy(values, config, label, num_replicas)
        steps.done(label)
    points: tuple[FrontierPoint, ...] = ()
    if frontier:
        thinned, _ = plannable(sample, limits, oversize)
        points = measure_frontier(
            sample, thinned, limits, shared, num_replicas, best.boundaries, steps.done
        )
    chosen = recommend(results)
    results[chosen] = replace(results[chosen], recommended=True)
    results["packed"] = _packed_bound(histogram, limits)
    return Comparison(
        strategies=results,
        frontier=points,
        frontier_samples=int(sample.size),
        bucketing=best,
        baselines=compare_baselines(histogram, limits, best.num_buckets, given=boundaries),
        histogram=histogram,
        limits=limits,
        num_replicas=num_replicas,
        accumulation_steps=accumulation_steps,
        num_oversize=num_oversize,
        seed=seed,
        recommended=chosen,
        reason=reason_for(chosen, results, points),
    )


class _Steps:
    """Counts finished pieces of work for a progress callback."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done, self._total = 0, 0

    def begin(self, total: int, what: str) -> None:
        self._total = total
        self.done(what)

    def done(self, what: str) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total, what)


def plannable(
    values: Int64Array, limits: BatchLimits, oversize: Oversize
) -> tuple[LengthHistogram, int]:
    """The histogram of what buckets are made for, and how many samples are oversize."""
    rows = find_oversize(values, limits, oversize)
    histogram = LengthHistogram.from_lengths(values)
    top = limits.longest_allowed
    kept = histogram.between(0, top + 1)
    if rows.size and oversize == "truncate":
        kept = kept + LengthHistogram(np.array([top]), np.array([rows.size]))
    return kept, int(rows.size)


def strategy_configs(
    limits: BatchLimits,
    best: Bucketing,
    boundaries: Sequence[int] | None,
    shared: dict[str, Any],
    num_samples: int,
) -> dict[str, tuple[str, BatchingConfig]]:
    """Name -> (words, config) of every strategy to measure.

    The baselines shuffle their batches, as such plans commonly do; ours have the default order.
    """
    count = best.num_buckets
    buckets = f"{count} best buckets" if count > 1 else "one bucket"
    window = min(DEFAULT_WINDOW, max(2, num_samples // 4))
    inner = min(INNER_WINDOW, max(2, num_samples // (4 * count)))
    fields: dict[str, tuple[str, dict[str, Any]]] = {
        "sorted": ("sorted, frozen", {"strategy": "sorted", "order": "shuffled"}),
        "random": ("random", {"strategy": "random", "order": "shuffled"}),
        "bucketed": (buckets, {"boundaries": best.boundaries}),
        "windowed": (f"windows of {window}", {"strategy": "windowed", "window_size": window}),
        "windowed_in_buckets": (
            f"windows of {inner} in {buckets}",
            {"strategy": "windowed", "window_size": inner, "boundaries": best.boundaries},
        ),
        "pooled": ("pool of open batches", {"strategy": "pooled"}),
    }
    if boundaries is not None:
        given = tuple(boundaries)
        label = f"{len(given) - 1} given buckets, shuffled"
        fields["given"] = (label, {"boundaries": given, "order": "shuffled"})
    return {
        name: (label, BatchingConfig(limits=limits, **shared, **more))
        for name, (label, more) in fields.items()
    }


def _packed_bound(histogram: LengthHistogram, limits: BatchLimits) -> StrategyResult:
    """No plan needs fewer batches than this, not even packing several samples into one row."""
    tokens, samples = histogram.num_tokens, histogram.num_samples
    count = -(-tokens // limits.max_tokens)
    if limits.max_batch_size is not None:
        count = max(count, -(-samples // limits.max_batch_size))
    return StrategyResult(
        strategy="packed",
        label="no padding at all (bound)",
        efficiency=1.0,
        utilization=tokens / (count * limits.max_tokens),
        num_batches=count,
        num_samples=samples,
        padded_tokens=tokens,
    )
