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
"""Forms from simple to rich; ``None`` is the formula."""


def fit_cost(measurements: Sequence[Measurement]) -> CostFit:
    """Fit the seconds of a step as a function of batch size and longest.

    Repeats of a shape become one centre first (:func:`summarise_shapes`), so every shape counts
    the same. The formula ``fixed + a * n * m + b * n * m**2`` is fitted by relative error,
    robustly (:func:`regress`). Where more of its residuals' variance is misfit than noise, tables
    of several sizes are fitted as well, and each form is judged by how well it
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
    formula = fit_formula(times.batch_size, times.longest, times.seconds)
    fits_badly = formula.regression.scale**2 > 2 * _noise_of_centres(times) ** 2
    size, errors = _choose(times, _SIZES if fits_badly else _SIZES[:1])
    form = _fit(times, size)
    assert form is not None  # the chosen size was fitted before, to fewer shapes
    return _with_errors(form, times, errors)


def _noise_of_centres(times: ShapeTimes) -> float:
    """Relative standard deviation of a shape's centre that the noise of its repeats explains."""
    return times.noise * float(np.sqrt(np.mean(1 / times.repeats)))


def _fit(times: ShapeTimes, size: tuple[int, int] | None) -> Form | None:
    if size is None:
        return fit_formula(times.batch_size, times.longest, times.seconds)
    return fit_table(times.batch_size, times.longest, times.seconds, size)


def _choose(
    times: ShapeTimes, candidates: Sequence[tuple[int, int] | None]
) -> tuple[tuple[int, int] | None, Float64Array]:
    """The form's table size (``None``: the formula) and its errors at left-out shapes."""
    tried: dict[tuple[int, int] | None, Float64Array] = {}
    for size in candidates:
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
    # Few residuals may be small by chance, but centres cannot vary less than their repeats say.
    found = form.regression
    by_noise = _noise_of_centres(times)
    wider = max(by_noise / found.scale, 1.0) if found.scale else 1.0
    by_repeats = float(times.repeats.sum() - times.repeats.size)
    shape_error = float(np.sqrt(np.mean(errors**2)))
    return CostFit(
        cost=form.cost,
        relative_error=float(np.hypot(shape_error, times.noise)),
        shape_error=shape_error,
        noise=times.noise,
        misfit=float(np.sqrt(max(found.scale**2 - by_noise**2, 0.0))),
        disturbance=times.disturbance,
        num_outliers=times.num_outliers,
        covariance=found.covariance * wider**2,
        degrees=max(found.degrees, by_repeats) if wider > 1 else found.degrees,
        batch_size=times.batch_size,
        longest=times.longest,
        measured_seconds=times.seconds,
        left_out_errors=errors,
    )
