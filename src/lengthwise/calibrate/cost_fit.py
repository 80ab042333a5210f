"""A fitted cost, and how far it is to be trusted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from lengthwise.calibrate.extra import require_scipy
from lengthwise.calibrate.forms import design
from lengthwise.core.cost import StepTime, TableTime
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array

_BATCHES_AT_ONCE = 1 << 16
_KINDS: dict[str, type[StepTime | TableTime]] = {"formula": StepTime, "table": TableTime}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostFit:
    """What a step takes, from measurements. S shapes were measured; P coefficients fitted.

    Attributes:
        cost: seconds of a batch, as a function of (batch size, longest).
        relative_error: expected relative error for the time of one batch: ``shape_error`` and
            ``noise`` together (root of the sum of squares).
        shape_error: root mean square of ``left_out_errors``.
        noise: standard deviation of one step around the centre of its shape, relative to it;
            0 where no shape was repeated.
        misfit: standard deviation of a shape's true centre around the fit, relative to it: what
            remains of the residuals when the noise is taken off.
        disturbance: share of time that rare slow steps added while measuring; no part of ``cost``.
        num_outliers: measurements that count nothing for their shape.
        covariance: of the coefficients, shape (P, P): those of the formula in its order, or a
            table's rises from entry to entry, row by row.
        degrees: how well the scale of the errors itself is known: shapes less coefficients, or
            repeats less shapes where the scale is that of the noise alone.
        batch_size: of each measured shape; int64, shape (S,).
        longest: of each measured shape, in tokens; int64, shape (S,).
        measured_seconds: centre of each shape's timings; float64, shape (S,).
        left_out_errors: (predicted - measured) / measured of each shape, predicted by a fit to
            the other shapes; float64, shape (S,).
    """

    cost: StepTime | TableTime
    relative_error: float
    shape_error: float
    noise: float
    misfit: float
    disturbance: float
    num_outliers: int
    covariance: Float64Array
    degrees: float
    batch_size: Int64Array
    longest: Int64Array
    measured_seconds: Float64Array
    left_out_errors: Float64Array

    def seconds(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Seconds of every batch; int64 arrays of shape (M,) in, float64 of shape (M,) out."""
        return self.cost(np.asarray(batch_size, np.int64), np.asarray(longest, np.int64))

    @overload
    def interval(
        self,
        batch_size: Int64Array,
        longest: Int64Array,
        level: float = 0.9,
        total: Literal[True] = True,
    ) -> tuple[float, float]: ...

    @overload
    def interval(
        self, batch_size: Int64Array, longest: Int64Array, level: float, total: Literal[False]
    ) -> tuple[Float64Array, Float64Array]: ...

    def interval(
        self,
        batch_size: Int64Array,
        longest: Int64Array,
        level: float = 0.9,
        total: bool = True,
    ) -> tuple[float, float] | tuple[Float64Array, Float64Array]:
        """Seconds that the batches take with probability ``level``: from, and up to.

        Three parts add up. The coefficients' uncertainty is common to all batches. The misfit is
        common to batches of like shape, taken as those with the same nearest measured shape. Noise
        is each batch's own, so of a sum over many batches little of it remains. The bounds are
        ``seconds * exp(± t * relative deviation)`` with Student's t for ``degrees``. Drift of the
        machine after the measurement, and disturbances rarer than it, are not in it.

        Args:
            batch_size: samples of each batch; int64, shape (M,).
            longest: tokens that each is padded to; int64, shape (M,).
            level: probability, between 0 and 1.
            total: the sum over the batches, or each batch.

        Returns:
            Two floats, or, of each batch, two arrays of shape (M,).

        Raises:
            ConfigError: the level is no probability.
        """
        if not 0 < level < 1:
            raise ConfigError(f"level must be between 0 and 1, got {level}")
        size, longest = np.asarray(batch_size, np.int64), np.asarray(longest, np.int64)
        times = _student(self.degrees, level)
        if not total:
            seconds, deviation = self._each(size, longest)
            # A table may hold a 0 where small batches took nearly nothing.
            relative = np.divide(deviation, seconds, out=np.zeros_like(seconds), where=seconds > 0)
            wide = np.exp(times * relative)
            return seconds / wide, seconds * wide
        whole, deviation_of_sum = self._sum(size, longest)
        wide_sum = float(np.exp(times * deviation_of_sum / whole)) if whole else 1.0
        return whole / wide_sum, whole * wide_sum

    def _each(self, size: Int64Array, longest: Int64Array) -> tuple[Float64Array, Float64Array]:
        seconds = self.cost(size, longest)
        common = np.empty(seconds.shape)
        for part in _parts(size.size):
            rows = design(self.cost, size[part], longest[part])
            common[part] = np.einsum("mp,pk,mk->m", rows, self.covariance, rows)
        own = (self.misfit**2 + self.noise**2) * seconds**2
        return seconds, np.sqrt(common + own)

    def _sum(self, size: Int64Array, longest: Int64Array) -> tuple[float, float]:
        shapes, counts = _distinct(size, longest)
        rows = np.zeros(self.covariance.shape[0])
        alike = np.zeros(self.batch_size.size)
        whole = noise = 0.0
        for part in _parts(counts.size):
            n, m, number = shapes[0, part], shapes[1, part], counts[part]
            seconds = self.cost(n, m)
            rows += number @ design(self.cost, n, m)
            np.add.at(alike, self._nearest(n, m), number * seconds)
            whole += float(number @ seconds)
            noise += float(number @ seconds**2)
        variance = float(rows @ self.covariance @ rows)
        variance += self.misfit**2 * float(alike @ alike) + self.noise**2 * noise
        return whole, float(np.sqrt(variance))

    def _nearest(self, size: Int64Array, longest: Int64Array) -> Int64Array:
        """The measured shape that is nearest by ratio of tokens and of longest; shape (M,)."""
        own = np.log(np.stack((self.batch_size * self.longest, self.longest), axis=1))
        asked = np.log(np.stack((size * longest, longest), axis=1))
        distance = ((asked[:, None] - own) ** 2).sum(axis=2)
        nearest: Int64Array = distance.argmin(axis=1)
        return nearest

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the cost as its kind and its fields."""
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            values[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
        kind = next(name for name, cls in _KINDS.items() if isinstance(self.cost, cls))
        own = {field.name: getattr(self.cost, field.name) for field in fields(self.cost)}
        return {**values, "cost": {"kind": kind, **own}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CostFit:
        """The inverse of :meth:`to_dict`."""
        cost = dict(values["cost"])
        kind = _KINDS[cost.pop("kind")]
        arrays = {
            **dict.fromkeys(("batch_size", "longest"), np.int64),
            **dict.fromkeys(("covariance", "measured_seconds", "left_out_errors"), np.float64),
        }
        plain = {name: np.array(values[name], dtype) for name, dtype in arrays.items()}
        return cls(**{**values, **plain, "cost": kind(**cost)})


def _distinct(size: Int64Array, longest: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The different pairs, shape (2, D), and how often each is there, shape (D,)."""
    sizes, first = np.unique(size, return_inverse=True)
    lengths, second = np.unique(longest, return_inverse=True)
    pairs, counts = np.unique(first * lengths.size + second, return_counts=True)
    return np.stack((sizes[pairs // lengths.size], lengths[pairs % lengths.size])), counts


def _parts(number: int) -> list[slice]:
    starts = range(0, number, _BATCHES_AT_ONCE)
    return [slice(start, start + _BATCHES_AT_ONCE) for start in starts]


def _student(degrees: float, level: float) -> float:
    """How many deviations to each side hold the share ``level`` of Student's distribution."""
    require_scipy()
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))
