"""Which strategy to use, and why, in words that the measured numbers decide."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.compare.frontier import FrontierPoint
    from lengthwise.compare.measure import StrategyResult

CANDIDATES = ("pooled", "windowed", "windowed_in_buckets", "bucketed")
_CLOSE = 1.02
"""Differences in repeat rate within two percent are noise of one pair of epochs."""


def recommend(strategies: dict[str, StrategyResult]) -> str:
    """The name of the strategy to use: the default, unless another beats it in both measures."""
    default = strategies["pooled"]
    for name in CANDIDATES:
        other = strategies.get(name)
        if other is not None and _beats(other, default):
            default = other
            best = name
            break
    else:
        best = "pooled"
    return best


def _beats(other: StrategyResult, one: StrategyResult) -> bool:
    if other.repeat_rate is None or one.repeat_rate is None:
        return False
    return other.efficiency > one.efficiency and other.repeat_rate * _CLOSE < one.repeat_rate


def reason_for(
    name: str, strategies: dict[str, StrategyResult], frontier: Sequence[FrontierPoint]
) -> str:
    """Why this one: its two numbers, and what every other family pays for as little padding."""
    chosen = strategies[name]
    repeat = chosen.repeat_rate or 0.0
    words = (
        f"{chosen.label}: {percent(chosen.efficiency)} of computed tokens are real, and "
        f"{percent(repeat, 3)} of the pairs that share a batch meet again in the next epoch."
    )
    others = [
        f"{family} {_times(rate, repeat)}"
        for family, rate in _cheapest(chosen, frontier).items()
        if family != chosen.strategy
    ]
    if others:
        words += f" For at least as little padding, pairs meet again: {', '.join(others)}."
    if "random" in strategies:
        saved = 1 - strategies["random"].efficiency / chosen.efficiency
        words += f" Against random batches it computes {percent(saved, 0)} fewer tokens."
    return words


def _times(rate: float | None, repeat: float) -> str:
    if rate is None:
        return "does not get there"
    if repeat <= 0.0:
        return percent(rate, 3)
    return f"{rate / repeat:.1f} times as often"


def _cheapest(chosen: StrategyResult, frontier: Sequence[FrontierPoint]) -> dict[str, float | None]:
    """Per family, the lowest repeat rate at this efficiency, between its measured points."""
    found: dict[str, float | None] = {}
    for family in dict.fromkeys(point.family for point in frontier):
        points = sorted((p.efficiency, p.repeat_rate) for p in frontier if p.family == family)
        found[family] = _interpolate(points, chosen.efficiency)
    return found


def _interpolate(points: list[tuple[float, float]], efficiency: float) -> float | None:
    for (low, rate_low), (high, rate_high) in pairwise(points):
        if low <= efficiency <= high:
            share = (efficiency - low) / (high - low) if high > low else 1.0
            return rate_low + share * (rate_high - rate_low)
    above = [rate for reached, rate in points if reached >= efficiency]
    return min(above) if above else None
