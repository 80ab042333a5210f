"""Curves with few enough points to look at, and smooth enough to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.report.training.run import Points

MOST_POINTS = 300
SMOOTHING = 1 / 40
"""Half-life of a smoothed curve, as a share of its points."""


def thinned(points: Points, most: int = MOST_POINTS) -> Points:
    """At most ``most`` points: means of equally many neighbours, in x and in y."""
    return [(_mean(part, 0), _mean(part, 1)) for part in _parts(points, most)]


def spans(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float, float]]:
    """For the same neighbours: mean x, least y, largest y."""
    return [
        (_mean(part, 0), min(y for _, y in part), max(y for _, y in part))
        for part in _parts(points, most)
    ]


def smoothed(points: Points, half_life: float | None = None) -> Points:
    """Means over the points so far, in which one counts half after ``half_life`` points.

    The default is a fortieth of the points, at least 1.
    """
    decay = 0.5 ** (1 / (half_life or max(1.0, len(points) * SMOOTHING)))
    total = weight = 0.0
    found = []
    for x, y in points:
        total, weight = total * decay + y, weight * decay + 1
        found.append((x, total / weight))
    return found


def mean_of_first(points: Points, share: float = 0.1) -> float | None:
    """Mean of the first tenth, at least of one point; None without any."""
    return _mean(points[: max(1, round(len(points) * share))], 1) if points else None


def mean_of_last(points: Points, share: float = 0.1) -> float | None:
    """Mean of the last tenth, at least of one point; None without any."""
    return _mean(points[-max(1, round(len(points) * share)) :], 1) if points else None


def _parts(points: Points, most: int) -> list[Points]:
    size = -(-len(points) // most) if points else 1
    return [points[start : start + size] for start in range(0, len(points), size)]


def _mean(part: Points, place: int) -> float:
    return sum(point[place] for point in part) / len(part)
