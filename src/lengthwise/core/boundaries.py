"""Bucket boundaries: evaluate given ones, find the best ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lengthwise.core.bucketing import (
    Bucketing,
    BucketStats,
    SearchReport,
    assign_buckets,
    validate_boundaries,
    without_empty_buckets,
)
from lengthwise.core.cost import resolve_objective
from lengthwise.core.expectation import Evaluator
from lengthwise.core.limits import require_int
from lengthwise.core.programme import CEILING_EDGES, GRID_EDGES, Found, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lengthwise.core.cost import Objective
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits

__all__ = [
    "BucketStats",
    "Bucketing",
    "SearchReport",
    "assign_buckets",
    "evaluate_boundaries",
    "optimize_boundaries",
    "validate_boundaries",
]


def evaluate_boundaries(
    hist: LengthHistogram,
    limits: BatchLimits,
    boundaries: Iterable[int],
    objective: Objective = "padding",
    *,
    pad_to_boundary: bool = False,
) -> Bucketing:
    """What an epoch packed greedily inside the given buckets is expected to cost.

    Samples of a bucket come in random order; one joins the open batch if the batch then is within
    the limits, else it opens the next batch. See ``docs/concepts/boundaries.md`` for how exact the
    expectation is. Limits with ``batch_size_multiple_of`` above 1 have no such formula: there the
    figures are the mean of a few simulated epochs with a fixed seed, and a note says so.

    Args:
        hist: lengths in tokens and their counts.
        limits: the batch limits.
        boundaries: K + 1 rising integers; the first at most the shortest length, the last above
            the longest. Buckets without samples are removed, and a note says which.
        objective: ``"padding"``, ``"steps"``, or a cost model: what ``cost`` is to measure.
        pad_to_boundary: pad every batch to the longest length of its bucket instead of its own
            longest. All batches but a bucket's last then have one size.

    Raises:
        ConfigError: boundaries that do not cover the lengths, or an unknown objective.
        DataError: there are no samples.
        OversizeError: a sample fits no batch; apply the ``oversize`` policy first.
    """
    name, model = resolve_objective(objective)
    evaluator = Evaluator.build(hist, limits, model, ceiling=pad_to_boundary)
    edges = validate_boundaries(boundaries, hist.shortest, hist.longest)
    return evaluate_prepared(evaluator, edges, name)


def evaluate_prepared(evaluator: Evaluator, edges: tuple[int, ...], name: str) -> Bucketing:
    """Evaluate valid boundaries on a prepared histogram; ``name`` is the objective's."""
    hist, limits = evaluator.histogram, evaluator.limits
    edges, notes = without_empty_buckets(edges, hist)
    expected, how = evaluator.expect(edges)
    buckets = []
    for lo, hi, (num_batches, padded, _) in zip(edges, edges[1:], expected, strict=False):
        part = hist.between(lo, hi)
        buckets.append(
            BucketStats(
                lo=lo,
                hi=hi,
                num_samples=part.num_samples,
                mean_length=part.mean,
                batch_size=part.num_samples / num_batches,
                num_batches=num_batches,
                padded_tokens=padded,
                efficiency=part.num_tokens / padded,
            )
        )
    num_batches = sum(bucket.num_batches for bucket in buckets)
    padded = sum(bucket.padded_tokens for bucket in buckets)
    real = hist.num_tokens
    return Bucketing(
        boundaries=edges,
        efficiency=real / padded,
        utilization=real / (num_batches * limits.max_tokens),
        num_batches=num_batches,
        padded_tokens=padded,
        real_tokens=real,
        objective=name,
        cost=sum(cost for _, _, cost in expected),
        buckets=tuple(buckets),
        notes=(*notes, *how),
    )


def optimize_boundaries(
    hist: LengthHistogram,
    limits: BatchLimits,
    num_buckets: int = 6,
    objective: Objective = "padding",
    *,
    pad_to_boundary: bool = False,
) -> Bucketing:
    """Boundaries of at most ``num_buckets`` buckets with the least expected cost.

    Optimal for this number of buckets, these limits and this objective: every choice of edges on a
    grid is compared at its expected cost, then edges are moved to single tokens while that helps.
    ``result.search`` says how fine the grid was and what a finer one still won. Up to 128 distinct
    lengths, every edge there is lies on the grid; above, edges lie only between lengths that are
    padded differently. Fewer buckets come back where more would not lower the cost; a note says
    so. The first boundary is 0, so that shorter samples have a bucket too.

    Args:
        hist: lengths in tokens and their counts.
        limits: the batch limits.
        num_buckets: at most this many buckets.
        objective: ``"padding"`` (fewest padded tokens), ``"steps"`` (fewest batches), or a cost
            model such as ``StepTime``: any function of (batch size, longest).
        pad_to_boundary: pad every batch to the longest length of its bucket (fixed shapes). For
            ``"padding"`` the result is then a proven optimum.

    Raises:
        ConfigError: ``num_buckets`` below 1, or an unknown objective.
        DataError: there are no samples.
        OversizeError: a sample fits no batch; apply the ``oversize`` policy first.
    """
    number = require_int("num_buckets", num_buckets, least=1)
    name, model = resolve_objective(objective)
    problem = Problem.build(hist, limits, model, ceiling=pad_to_boundary)
    found, report = search(problem, [number])[number]
    evaluator = Evaluator.build(hist, limits, model, ceiling=pad_to_boundary)
    return describe(evaluate_prepared(evaluator, found.edges, name), report, number, evaluator)


def search(problem: Problem, numbers: list[int]) -> dict[int, tuple[Found, SearchReport]]:
    """The best edges for each number of buckets, and how they were found."""
    coarse = problem.grid(CEILING_EDGES if problem.ceiling else GRID_EDGES)
    most = max(numbers)
    first = problem.solve(coarse, most)
    exhaustive = coarse.size == len(problem.support) + 1
    fine = coarse if exhaustive else problem.grid(2 * coarse.size)
    second = first if exhaustive else problem.solve(fine, most)
    results = {}
    for number in numbers:
        found = problem.improve(problem.trace(coarse, first, number), coarse)
        gain = 0.0
        if not exhaustive:
            other = problem.improve(problem.trace(fine, second, number), fine)
            if other.cost < found.cost:
                gain = (found.cost - other.cost) / found.cost
                found = other
        won = (found.grid_cost - found.cost) / found.cost if found.cost else 0.0
        results[number] = (found, SearchReport(int(fine.size), exhaustive, won, gain))
    return results


def describe(
    result: Bucketing, report: SearchReport, wanted: int, evaluator: Evaluator
) -> Bucketing:
    """Add to evaluated boundaries how they were found, and why they are fewer than wanted."""
    notes = result.notes
    if result.num_buckets < wanted:
        distinct = len(evaluator.histogram)
        why = (
            f"there are only {distinct:,} distinct lengths"
            if distinct == result.num_buckets
            else "more would not lower the expected cost"
        )
        notes = (*notes, f"{result.num_buckets} buckets instead of {wanted}: {why}")
    return replace(result, search=report, notes=notes)
