"""Steps whose loss leaps out, judged without what their mixture of lengths usually adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.diagnose.loss import FIRST, LEAST_STEPS, jumpiness

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.diagnose.loss import Jumpiness, LossSeries

    Float64Array = npt.NDArray[np.float64]

LEAST_SCORE = 6.0
"""Robust standard deviations above the usual; of a million normal steps none comes so far."""
WINDOW = 201
"""Records around a step that its spread is found from."""
MOST = 10
ROUNDING = 1e-9
"""Of the loss, below which a spread is rounding."""
_TO_DEVIATION = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A step whose loss leapt.

    Attributes:
        step: its number: optimiser steps made when it was done.
        loss: of it.
        usual: what it would have been: the level around it, and its mixture of lengths.
        score: how far above, in robust standard deviations.
        length_class: number of the class in which it lay highest, weighted by its share.
        length_words: the same in words.
    """

    step: int
    loss: float
    usual: float
    score: float
    length_class: int
    length_words: str


def find_spikes(series: LossSeries) -> tuple[tuple[Spike, ...], Jumpiness | None]:
    """The highest spikes, at most ten, in order; and how the curve jumps without them.

    A step's score is its residual (see :class:`~lengthwise.diagnose.loss.Jumpiness`) less the
    median, over 1.4826 times the median absolute deviation, of the records around it. Spikes are
    found twice: the first time they still pull at the level around them. The first ten records
    have none.
    """
    if series.loss.size < LEAST_STEPS:
        return (), None
    rounding = ROUNDING * float(np.abs(series.loss).max())
    later = np.arange(series.loss.size) >= FIRST
    found = jumpiness(series)
    for _ in range(2):
        scores = robust_scores(found.residuals, rounding)
        found = jumpiness(series, later & (scores >= LEAST_SCORE))
    scores = robust_scores(found.residuals, rounding)
    places = np.flatnonzero(later & (scores >= LEAST_SCORE))
    highest = sorted(places[np.argsort(-scores[places], kind="stable")][:MOST].tolist())
    return tuple(_spike(series, found, scores, place) for place in highest), found


def robust_scores(
    residuals: Float64Array, rounding: float = 0.0, window: int = WINDOW
) -> Float64Array:
    """Distance from the median around, in robust standard deviations; 0 where all are alike.

    Args:
        residuals: (T,).
        rounding: the least that counts as a standard deviation.
        window: values around each that count.
    """
    size = min(window, residuals.size)
    rows = np.lib.stride_tricks.sliding_window_view(residuals, size)
    starts = np.clip(np.arange(residuals.size) - size // 2, 0, len(rows) - 1)
    medians = np.median(rows, axis=1)
    spreads = np.array([np.median(np.abs(row - m)) for row, m in zip(rows, medians, strict=True)])
    distance = residuals - medians[starts]
    scale = np.maximum(_TO_DEVIATION * spreads[starts], rounding)
    found: Float64Array = np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0)
    return found


def _spike(series: LossSeries, found: Jumpiness, scores: Float64Array, place: int) -> Spike:
    beyond = series.shares[place] * (
        series.losses[place] - found.offsets - (found.usual[place] - _mixture(series, found, place))
    )
    highest = int(np.argmax(np.where(series.shares[place] > 0, beyond, -np.inf)))
    return Spike(
        step=int(series.steps[place]),
        loss=float(series.loss[place]),
        usual=float(found.usual[place]),
        score=float(scores[place]),
        length_class=highest,
        length_words=series.classes[highest],
    )


def _mixture(series: LossSeries, found: Jumpiness, place: int) -> float:
    """About what the step's mixture of lengths adds, by the run's mean offsets."""
    return float(series.shares[place] @ found.offsets)
