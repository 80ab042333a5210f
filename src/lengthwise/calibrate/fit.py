"""From measured steps to a cost model with an error bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.calibrate.cost_fit import CostFit
from lengthwise.calibrate.forms import TABLE_SIZES, Form, fit_formula, fit_table
from lengthwise.calibrate.measurement import ShapeTimes, summarise_shapes
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.calibrate.measurement import Measurement
    from lengthwise.core.cost import Float64Array

LEAST_SHAPES = 4
"""Different shapes that a fit needs: three coefficients, and one to see an error."""
_SIZES = (None, *TABLE_SIZES)


def fit_cost(measurements: Sequence[Measurement]) -> CostFit:
    """Fit the seconds of a step as a function of batch size and longest.

    Repeats of a shape become one centre first (:func:`summarise_shapes`), so every shape counts
    the same. The formula ``fixed + a * n * m + b * n * m**2`` and tables of several sizes are
    fitted by relative error, robustly (:func:`regress`), and each is judged by how well it
    predicts shapes that it has not seen: by the mean absolute error when each shape is left out.
    The simplest form wins whose error is within one standard error of the smallest (Breiman et
    al., Classification and Regression Trees, 1984, section 3.4.3).

    Args:
        measurements: timed steps, in any order; repeats of a shape tell noise from misfit.

    Raises:
        ConfigError: fewer than four different shapes.
        MissingDependencyError: SciPy is not installed.
    """
    times = summarise_shapes(measurements)
    if times.seconds.size < LEAST_SHAPES:
        raise ConfigError(
            f"a cost is fitted from at least {LEAST_SHAPES} different shapes (three coefficients "
            f"and an error), got {times.seconds.size}; measure more batch sizes or lengths"
        )
    size, errors = _choose(times)
    form = _fit(times, size)
    assert form is not None  # the chosen size was fitted before, to fewer shapes
    return _with_errors(form, times, errors)


def _fit(times: ShapeTimes, size: tuple[int, int] | None) -> Form | None:
    if size is None:
        return fit_formula(times.batch_size, times.longest, times.seconds)
    return fit_table(times.batch_size, times.longest, times.seconds, size)


def _choose(times: ShapeTimes) -> tuple[tuple[int, int] | None, Float64Array]:
    """The form's table size (``None``: the formula) and its errors at left-out shapes."""
    tried: dict[tuple[int, int] | None, Float64Array] = {}
    for size in _SIZES:
        if size is not None and size[0] * size[1] + 1 >= times.seconds.size:
            continue
        errors = _left_out_errors(times, size)
        if errors is not None:
            tried[size] = errors
    sizes = {size: np.abs(errors) for size, errors in tried.items()}
    best = min(sizes.values(), key=lambda errors: float(errors.mean()))
    allowed = best.mean() + best.std(ddof=1) / np.sqrt(best.size)
    return next((size, tried[size]) for size in tried if sizes[size].mean() <= allowed)


def _left_out_errors(times: ShapeTimes, size: tuple[int, int] | None) -> Float64Array | None:
    """(predicted - measured) / measured of each shape, by a fit to the others; shape (S,)."""
    errors = np.empty(times.seconds.size)
    everywhere = np.arange(errors.size)
    for place in everywhere:
        others = times.select(everywhere != place)
        form = _fit(others, size)
        if form is None:
            return None
        here = slice(place, place + 1)
        predicted = form.cost(times.batch_size[here], times.longest[here])
        errors[here] = predicted / times.seconds[here] - 1
    return errors


def _with_errors(form: Form, times: ShapeTimes, errors: Float64Array) -> CostFit:
    scale = form.regression.scale
    by_noise = times.noise**2 * float(np.mean(1 / times.repeats))
    shape_error = float(np.sqrt(np.mean(errors**2)))
    return CostFit(
        cost=form.cost,
        relative_error=float(np.hypot(shape_error, times.noise)),
        shape_error=shape_error,
        noise=times.noise,
        misfit=float(np.sqrt(max(scale**2 - by_noise, 0.0))),
        disturbance=times.disturbance,
        num_outliers=times.num_outliers,
        covariance=form.regression.covariance,
        degrees=form.regression.degrees,
        batch_size=times.batch_size,
        longest=times.longest,
        measured_seconds=times.seconds,
        left_out_errors=errors,
    )
