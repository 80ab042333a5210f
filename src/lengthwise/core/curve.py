"""What each number of buckets is worth, and which one to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.core.boundaries import describe, evaluate_prepared, search
from lengthwise.core.cost import resolve_objective
from lengthwise.core.expectation import Evaluator
from lengthwise.core.limits import require_int
from lengthwise.core.programme import Problem
from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from lengthwise.core.bucketing import Bucketing
    from lengthwise.core.cost import Objective
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits

WORTHWHILE = 0.025
"""A doubling of the number of buckets is worth it while it saves this share of the cost."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The best boundaries for every number of buckets.

    Attributes:
        bucketings: for 1, 2, ... buckets; one with fewer buckets than its place has a note why.
        recommended: the number of buckets to take.
        reason: why, in words.
    """

    bucketings: tuple[Bucketing, ...]
    recommended: int
    reason: str

    def __getitem__(self, num_buckets: int) -> Bucketing:
        """The best boundaries for at most this many buckets, from 1."""
        if not 1 <= num_buckets <= len(self.bucketings):
            raise IndexError(f"the curve has 1 to {len(self.bucketings)} buckets")
        return self.bucketings[num_buckets - 1]

    def __len__(self) -> int:
        """The largest number of buckets."""
        return len(self.bucketings)

    @property
    def best(self) -> Bucketing:
        """The recommended boundaries."""
        return self[self.recommended]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``recommended``, ``reason``, and ``curve``.

        The curve has one entry for each number of buckets ``wanted``, with the keys of
        :class:`~lengthwise.core.bucketing.Bucketing` and its own ``num_buckets``.
        """
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "curve": [
                {"wanted": number, "num_buckets": bucketing.num_buckets, **bucketing.to_dict()}
                for number, bucketing in enumerate(self.bucketings, start=1)
            ],
        }


def optimize_curve(
    hist: LengthHistogram,
    limits: BatchLimits,
    max_buckets: int = 64,
    objective: Objective = "padding",
    *,
    pad_to_boundary: bool = False,
) -> Curve:
    """The best boundaries for 1 to ``max_buckets`` buckets, and a recommendation.

    One dynamic programme gives every number of buckets; each is then refined as
    :func:`~lengthwise.core.boundaries.optimize_boundaries` does. Recommended is the smallest number
    whose doubling would save less than 2.5 % of the cost: more buckets mean fewer samples that can
    meet in a batch, so they should pay for themselves.

    Args:
        hist: lengths in tokens and their counts.
        limits: the batch limits.
        max_buckets: the largest number of buckets.
        objective: as in ``optimize_boundaries``.
        pad_to_boundary: as in ``optimize_boundaries``.

    Raises:
        ConfigError: ``max_buckets`` below 1, or an unknown objective.
        DataError: there are no samples.
        OversizeError: a sample fits no batch; apply the ``oversize`` policy first.
    """
    most = require_int("max_buckets", max_buckets, least=1)
    name, model = resolve_objective(objective)
    problem = Problem.build(hist, limits, model, ceiling=pad_to_boundary)
    evaluator = Evaluator.build(hist, limits, model, ceiling=pad_to_boundary)
    found = search(problem, list(range(1, most + 1)))
    bucketings: list[Bucketing] = []
    best, report = found[1]
    bucketing = evaluate_prepared(evaluator, best.edges, name)
    for number in range(1, most + 1):
        if found[number][0].cost < best.cost:
            best, report = found[number]
            bucketing = evaluate_prepared(evaluator, best.edges, name)
        bucketings.append(describe(bucketing, report, number, evaluator))
    number, reason = _recommend(bucketings)
    return Curve(tuple(bucketings), number, reason)


def _recommend(bucketings: list[Bucketing]) -> tuple[int, str]:
    most = len(bucketings)
    for number in range(1, most // 2 + 1):
        now, double = bucketings[number - 1], bucketings[2 * number - 1]
        saved = (now.cost - double.cost) / now.cost if now.cost else 0.0
        if saved < WORTHWHILE:
            return now.num_buckets, (
                f"K = {now.num_buckets} keeps {percent(now.efficiency)}; doubling it to "
                f"{2 * number} saves {percent(saved)} of the {_noun(now)}, less than "
                f"{percent(WORTHWHILE)}"
            )
    last = bucketings[-1]
    return last.num_buckets, (
        f"K = {last.num_buckets} keeps {percent(last.efficiency)}; every doubling up to there "
        f"saves at least {percent(WORTHWHILE)} of the {_noun(last)}"
    )


def _noun(bucketing: Bucketing) -> str:
    return {"padding": "padded tokens", "steps": "batches"}.get(bucketing.objective, "cost")
