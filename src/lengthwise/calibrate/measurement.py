"""What a measured step took, and what repeats of one shape say together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array

TUKEY = 4.685
"""Standard deviations from a shape's centre at which a timing stops counting (Tukey's biweight:
95 % as efficient as the mean where the noise is normal)."""
_NORMAL_MEDIAN = 1.4826
"""Standard deviation of a normal variable over the median of its absolute value."""


class Shape(NamedTuple):
    """Samples of a batch, and tokens that each is padded to."""

    batch_size: int
    longest: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One timed step.

    Args:
        batch_size: samples, at least 1.
        longest: tokens that each sample is padded to, at least 1.
        seconds: what the step took; above 0.
        peak_bytes: the most memory it held, weights included; ``None`` where nobody counts.

    Raises:
        ConfigError: a value out of range.
    """

    batch_size: int
    longest: int
    seconds: float
    peak_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no step can have measured."""
        put = object.__setattr__
        put(self, "batch_size", require_int("batch_size", self.batch_size, least=1))
        put(self, "longest", require_int("longest", self.longest, least=1))
        put(self, "seconds", float(self.seconds))
        if not math.isfinite(self.seconds) or self.seconds <= 0:
            raise ConfigError(f"seconds must be finite and above 0, got {self.seconds}")
        if self.peak_bytes is not None:
            peak = require_int("peak_bytes", self.peak_bytes, least=0, most=2**62)
            put(self, "peak_bytes", peak)

    @property
    def shape(self) -> Shape:
        """Batch size and longest."""
        return Shape(self.batch_size, self.longest)


@dataclass(frozen=True, slots=True, eq=False)
class ShapeTimes:
    """Measurements, one entry a shape.

    Attributes:
        batch_size: samples; int64, shape (S,).
        longest: padded tokens of each; int64, shape (S,).
        seconds: centre of the shape's timings; float64, shape (S,).
        repeats: timings of the shape; int64, shape (S,).
        noise: standard deviation of one timing around its shape's centre, relative to it;
            0 where no shape was repeated.
        num_outliers: timings that count nothing for their shape's centre.
        disturbance: what all timings sum to over what the centres do, minus 1: the share of time
            that rare slow steps add.
    """

    batch_size: Int64Array
    longest: Int64Array
    seconds: Float64Array
    repeats: Int64Array
    noise: float
    num_outliers: int
    disturbance: float

    def select(self, kept: npt.NDArray[np.bool_]) -> ShapeTimes:
        """The shapes where ``kept`` is true; what is said of all shapes stays."""
        return replace(
            self,
            batch_size=self.batch_size[kept],
            longest=self.longest[kept],
            seconds=self.seconds[kept],
            repeats=self.repeats[kept],
        )


def summarise_shapes(measurements: Sequence[Measurement]) -> ShapeTimes:
    """Bring the repeats of each shape together.

    The centre of a shape is the mean of its timings under Tukey's biweight, begun at the median:
    a run adds up what steps take, so the mean is wanted, of the steps that nothing disturbed.
    The noise is pooled over shapes, from the median difference of two timings of one shape, which
    a quarter of disturbed timings cannot move far and which has no bias for few repeats.
    """
    groups: dict[Shape, list[float]] = {}
    for item in measurements:
        groups.setdefault(item.shape, []).append(item.seconds)
    shapes = sorted(groups)
    timings = [np.array(groups[shape]) for shape in shapes]
    kept = timings
    for _ in range(2):  # the second time without the outliers, which make the noise look larger
        noise = _pooled_noise(kept)
        centres = np.array([_centre(values, noise) for values in timings])
        kept = [
            values[np.abs(values / centre - 1) < TUKEY * noise] if noise else values
            for values, centre in zip(timings, centres, strict=True)
        ]
    repeats = np.array([values.size for values in timings], np.int64)
    num_outliers = sum(all_.size - some.size for all_, some in zip(timings, kept, strict=True))
    return ShapeTimes(
        np.array([shape.batch_size for shape in shapes], np.int64),
        np.array([shape.longest for shape in shapes], np.int64),
        centres,
        repeats,
        noise,
        num_outliers,
        float(sum(values.sum() for values in timings) / (centres @ repeats) - 1),
    )


def _pooled_noise(timings: list[Float64Array]) -> float:
    differences = [
        abs(float(a - b)) / float(np.median(values))
        for values in timings
        for a, b in combinations(values, 2)
    ]
    if not differences:
        return 0.0
    return float(np.median(differences)) * _NORMAL_MEDIAN / math.sqrt(2)


def _centre(values: Float64Array, noise: float) -> float:
    centre = float(np.median(values))
    for _ in range(10 if noise else 0):
        distance = (values / centre - 1) / (TUKEY * noise)
        weights = np.where(np.abs(distance) < 1, (1 - distance**2) ** 2, 0.0)
        if not weights.any():  # two timings far apart: neither is the disturbed one for sure
            break
        centre = float(values @ weights / weights.sum())
    return centre
