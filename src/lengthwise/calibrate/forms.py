"""The forms that a cost can take, and fitting one of them: the plain formula and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.calibrate.regression import Regression, regress
from lengthwise.core.cost import StepTime, TableTime

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array

TABLE_SIZES = ((2, 3), (3, 3), (3, 4), (4, 4))
"""Tables that are tried: rows of longest, columns of padded tokens (the first at 0)."""
_PRIOR = 0.1
"""How heavy a shape weighs in an entry of a table that no shape is near: the plain formula."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A cost model and how the fit came about."""

    cost: StepTime | TableTime
    regression: Regression


def design(cost: StepTime | TableTime, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
    """What each coefficient of a cost is multiplied by, for every batch; shape (M, P).

    The coefficients are those of the formula, or a table's rises from entry to entry.
    """
    if isinstance(cost, TableTime):
        return cost.weights(batch_size, longest).reshape(batch_size.size, -1)
    tokens = batch_size.astype(np.float64) * longest
    return np.stack((np.ones(tokens.shape), tokens, tokens * longest), axis=1)


def fit_formula(batch_size: Int64Array, longest: Int64Array, seconds: Float64Array) -> Form:
    """Fit ``fixed + a * n * m + b * n * m**2``.

    A column that the shapes cannot tell from the others is left out: the last where all shapes
    have one longest, the first where there is one shape.
    """
    rows = design(StepTime(fixed_seconds=1.0), batch_size, longest)
    kept = [1]
    for column in (2, 0):
        scaled = rows[:, [*kept, column]] / rows[:, [*kept, column]].max(axis=0)
        if np.linalg.matrix_rank(scaled, tol=1e-6) > len(kept):
            kept.append(column)
    found = regress(rows[:, kept], seconds)
    coefficients, covariance = np.zeros(3), np.zeros((3, 3))
    coefficients[kept] = found.coefficients
    covariance[np.ix_(kept, kept)] = found.covariance
    whole = Regression(coefficients, covariance, found.residuals, found.scale, found.degrees)
    fixed, linear, squared = (float(value) for value in coefficients)
    cost = StepTime(
        fixed_seconds=fixed, seconds_per_token=linear, seconds_per_token_squared=squared
    )
    return Form(cost, whole)


def fit_table(
    batch_size: Int64Array, longest: Int64Array, seconds: Float64Array, size: tuple[int, int]
) -> Form | None:
    """Fit a table; ``None`` where there are too few different lengths or sizes for it.

    Its knots are quantiles of the measured shapes. The rises along each row are fitted, none
    negative, so the time never falls. An entry that no shape is near takes what the formula says:
    an equation for each entry, one hundredth of a shape's weight, holds it there.
    """
    num_rows, num_columns = size
    rows = _knots(longest, num_rows)
    columns = np.append(0.0, _knots(batch_size * longest, num_columns, first=1))
    if rows.size < num_rows or columns.size < num_columns:
        return None
    fixed, linear, squared = fit_formula(batch_size, longest, seconds).regression.coefficients
    expected = fixed + columns * (linear + squared * rows[:, None])
    start = TableTime(tokens=tuple(columns), longest=tuple(rows), seconds=_tuples(expected))
    entries = np.kron(np.eye(num_rows), np.tril(np.ones((num_columns, num_columns))))
    known = expected.ravel() > 0
    entries = entries[known] / expected.ravel()[known, None]
    prior = _PRIOR * np.hstack((entries, np.ones((len(entries), 1))))
    found = regress(design(start, batch_size, longest), seconds, prior)
    table = np.cumsum(found.coefficients.reshape(size), axis=1)
    cost = TableTime(tokens=start.tokens, longest=start.longest, seconds=_tuples(table))
    return Form(cost, found)


def _knots(values: Int64Array, number: int, first: int = 0) -> Float64Array:
    """``number - first`` quantiles of the distinct values, the largest included."""
    shares = np.linspace(0, 1, number)[first:]
    return np.unique(np.quantile(np.unique(values), shares, method="nearest")).astype(np.float64)


def _tuples(table: Float64Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in row) for row in table)
