"""Where points, labels and ticks stand on logarithmic axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lengthwise.report.tables import parameter
from lengthwise.report.words import count, measure, share, significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.report.data import FrontierPoint, StrategyRow

_LABEL_WIDTH, _LABEL_HEIGHT = 0.14, 0.06
"""Room of a label as a share of the plot, on a phone's width."""
_MARK_LEFT, _MARK_RIGHT = (0, -1, -2), (0, 1, 2)
"""Where the word "recommended" takes the room of labels, in label widths from the mark."""

_NOTHING = 1e-15
"""What is smaller than this is a rounding error of 0."""


def placed_points(
    points: Sequence[FrontierPoint], recommended: StrategyRow | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the points, and of the recommended plan (none or one), with their places.

    ``rate`` and ``padding`` are places on the axes; they differ from the true values only where
    those are 0.
    """
    both = [(point.efficiency, point.repeat_rate) for point in points]
    label = None
    if recommended is not None:
        efficiency, rate = recommended.efficiency, recommended.repeat_rate
        if efficiency is not None and rate is not None:
            label = recommended.label
            both.append((efficiency, rate))
    places = _places(both)
    rows = [
        {
            "family": point.family,
            "order": point.parameter,
            "parameter": parameter(point.parameter),
            "batches_text": count(point.num_batches),
            "effect_text": measure(point.design_effect),
            "side": "below" if point.family == "bucketed" else "above",
        }
        | place
        for point, place in zip(points, places, strict=False)
    ]
    if label is None:
        return rows, []
    logs = [math.log(place["rate"]) for place in places]
    # The frontier bends to the upper left, so that corner is free, unless there is no room.
    has_room = logs[-1] - min(logs) > 0.3 * (max(logs) - min(logs))
    return rows, [places[-1] | {"label": label, "align": "right" if has_room else "left"}]


def _places(both: list[tuple[float, float]]) -> list[dict[str, Any]]:
    rate_floor = _below([rate for _, rate in both])
    padding_floor = _below([1 - efficiency for efficiency, _ in both])
    return [
        {
            "efficiency_text": share(efficiency),
            "rate_text": significant(rate),
            "padding": max(1 - efficiency, padding_floor),
            "rate": max(rate, rate_floor),
        }
        for efficiency, rate in both
    ]


def _below(values: list[float]) -> float:
    """Where 0 stands on a logarithmic axis: at half of the smallest that has a place."""
    return min((value for value in values if value > _NOTHING), default=2e-6) / 2


def domain(values: list[float]) -> list[float]:
    """A logarithmic axis around positive values, with a tenth of its length free at both ends.

    It spans at least a factor of 2.5, so that a tick at 1, 2 or 5 times a power of ten is inside.
    """
    if not values:
        return [1e-6, 1.0]
    margin = max((max(values) / min(values)) ** 0.1, 1.6)
    return [min(values) / margin, max(values) * margin]


def label_points(rows: list[dict[str, Any]], mark: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose labels fit without touching one that was placed before.

    The mark and its words come first, then the ends of each family, so that a reader sees
    its range.
    """
    if not rows:
        return []
    logs = [math.log(row["rate"]) for row in rows]
    heights = [-math.log(row["padding"]) for row in rows]
    wide, high = (max(max(values) - min(values), 1e-9) for values in (logs, heights))
    at = [(x / wide, y / high) for x, y in zip(logs, heights, strict=True)]
    taken = [
        (math.log(row["rate"]) / wide + shift * _LABEL_WIDTH, -math.log(row["padding"]) / high)
        for row in mark
        for shift in (_MARK_LEFT if row["align"] == "right" else _MARK_RIGHT)
    ]
    ends = {places[end] for places in _by_family(rows) for end in (0, -1)}
    kept = []
    for place in sorted(range(len(rows)), key=lambda place: (place not in ends, place)):
        x, y = at[place]
        if all(abs(x - a) > _LABEL_WIDTH or abs(y - b) > _LABEL_HEIGHT for a, b in taken):
            taken.append(at[place])
            kept.append(place)
    return [rows[place] for place in sorted(kept)]


def _by_family(rows: list[dict[str, Any]]) -> list[list[int]]:
    families: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        families.setdefault(row["family"], []).append(place)
    return list(families.values())


def log_ticks(lo: float, hi: float) -> list[float]:
    """1, 2 and 5 times the powers of ten in ``[lo, hi]``; the powers alone over four decades."""
    steps = (1,) if hi / lo > 1e4 else (1, 2, 5)
    exponents = range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
    ticks = [float(f"{step}e{exponent}") for exponent in exponents for step in steps]
    return [tick for tick in ticks if lo <= tick <= hi]
