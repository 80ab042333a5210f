"""Non-negative least squares of relative errors that single wild shapes cannot lead astray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.calibrate.extra import require_scipy

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array

HUBER = 1.345
"""Standard deviations up to which an error counts by its square, beyond by its size (95 % as
efficient as least squares where errors are normal)."""
_NORMAL_MEDIAN = 1.4826
_ROUNDS = 50
_STILL = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """A fit ``rows @ coefficients`` of seconds.

    Attributes:
        coefficients: none negative; shape (P,).
        covariance: of the coefficients, with the bound at 0 ignored, which can only widen
            intervals; shape (P, P).
        residuals: (seconds - fit) / fit of each row; shape (S,).
        scale: standard deviation of a residual.
        degrees: rows less coefficients that the data determined; what is left to judge the scale.
    """

    coefficients: Float64Array
    covariance: Float64Array
    residuals: Float64Array
    scale: float
    degrees: float


def regress(
    rows: Float64Array, seconds: Float64Array, prior: Float64Array | None = None
) -> Regression:
    """Fit seconds by a non-negative combination of columns, in relative error.

    Noise of timings grows with what is timed, so each row is divided by the fit of the round
    before (by the measured value in the first), which is weighting by 1 / seconds without its
    bias towards rows that came out low. Errors beyond 1.345 standard deviations count by their
    size, not their square (Huber, Ann. Math. Stat. 35, 1964), by reweighting until nothing moves.
    The solver of each round is that of Lawson and Hanson (1974), from SciPy.

    Args:
        rows: what each coefficient is multiplied by; shape (S, P), none negative.
        seconds: measured, all above 0; shape (S,).
        prior: rows of equations ``prior @ coefficients = 1`` that hold where the data is silent,
            already weighted, shape (K, P + 1) with the right side last; not reweighted.

    Raises:
        MissingDependencyError: SciPy is not installed.
    """
    require_scipy()
    from scipy.optimize import nnls

    columns = rows.max(axis=0)
    columns = np.where(columns > 0, columns, 1.0)
    rows = rows / columns
    prior = np.empty((0, columns.size + 1)) if prior is None else prior / np.append(columns, 1.0)
    fitted, huber = seconds, np.ones(seconds.size)
    coefficients = np.zeros(columns.size)
    for _ in range(_ROUNDS):
        base = np.clip(fitted, seconds / 2, seconds * 2)  # a wild round must not weight itself
        root = np.sqrt(huber) / base
        left = np.concatenate((rows * root[:, None], prior[:, :-1]))
        before = coefficients
        coefficients, _ = nnls(left, np.concatenate((seconds * root, prior[:, -1])))
        fitted = rows @ coefficients
        residuals = (seconds - fitted) / base
        huber = _huber_weights(residuals, columns.size)
        if np.abs(coefficients - before).max() <= _STILL * np.abs(coefficients).max():
            break
    inverse = np.linalg.pinv(left.T @ left, hermitian=True)
    inside = float(np.sum((rows * root[:, None] @ inverse) * (rows * root[:, None])))
    degrees = max(seconds.size - inside, 1.0)
    scale = _scale(residuals, huber, degrees)
    covariance = inverse * scale**2 / np.outer(columns, columns)
    return Regression(coefficients / columns, covariance, residuals, scale, degrees)


def _huber_weights(residuals: Float64Array, num_fitted: int) -> Float64Array:
    # As many residuals as coefficients may be 0 because the fit goes through them, so the
    # deviation is judged by the others.
    sizes = np.sort(np.abs(residuals))[min(num_fitted, residuals.size) - 1 :]
    limit = HUBER * max(float(sizes[sizes.size // 2]) * _NORMAL_MEDIAN, 1e-12)
    return np.minimum(1.0, limit / np.maximum(np.abs(residuals), limit))


def _scale(residuals: Float64Array, huber: Float64Array, degrees: float) -> float:
    """Huber's estimate of the residuals' deviation, as it enters the coefficients' covariance.

    With psi(r) = weight * r: sum of psi squared / degrees, over the share of rows that psi leaves
    as they are, squared (Huber, Robust Statistics, 1981, chapter 7).
    """
    untouched = float(np.mean(huber >= 1.0))
    return float(np.sqrt(np.sum((huber * residuals) ** 2) / degrees)) / max(untouched, 0.5)
