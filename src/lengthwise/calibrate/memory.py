"""The most memory that a step holds, as a function of its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.calibrate.extra import require_scipy
from lengthwise.calibrate.forms import design
from lengthwise.core.cost import StepTime
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.calibrate.measurement import Measurement
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array

MARGIN = 0.05
"""Share that is added to the measured peaks' upper bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Peak bytes of a step: ``fixed + c * n * m + d * n * m**2``, above every measured peak.

    Attributes:
        fixed_bytes: held by every step: weights, gradients, buffers.
        bytes_per_token: for each padded token.
        bytes_per_token_squared: for each pair of padded tokens of one sample; 0 where attention
            never holds its scores.
        margin: share that :meth:`peak_bytes` adds to the formula.
        relative_slack: how far the formula lies above the measured peaks, on average, as a share.
    """

    fixed_bytes: float
    bytes_per_token: float
    bytes_per_token_squared: float
    margin: float
    relative_slack: float

    def peak_bytes(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Peak bytes of every batch, margin included; arrays of shape (M,)."""
        size, longest = np.asarray(batch_size), np.asarray(longest)
        tokens = size.astype(np.float64) * longest
        per_token = self.bytes_per_token + self.bytes_per_token_squared * longest
        return (1 + self.margin) * (self.fixed_bytes + tokens * per_token)

    def largest_batch_size(self, longest: int, limit_bytes: int) -> int:
        """The most samples of ``longest`` tokens whose peak stays within ``limit_bytes``.

        0 where not even one does.
        """
        free = limit_bytes / (1 + self.margin) - self.fixed_bytes
        per_sample = longest * (self.bytes_per_token + self.bytes_per_token_squared * longest)
        if per_sample <= 0:
            raise ConfigError("the measured peaks do not grow with the batch; measure larger ones")
        return max(int(free // per_sample), 0)


def fit_memory(measurements: Sequence[Measurement], margin: float = MARGIN) -> MemoryFit | None:
    """Fit the lowest upper bound of the measured peaks.

    Running out of memory is no matter of averages, so the fit is no least squares: no measured
    peak lies above it, and of all such fits with coefficients of at least 0 it has the least mean
    relative distance to them (a linear programme, solved by SciPy).

    Args:
        measurements: of at least one step with ``peak_bytes``.
        margin: share to add on top, for shapes in between and fragmentation; at least 0.

    Returns:
        The fit; ``None`` where no peak was counted.

    Raises:
        ConfigError: a negative margin.
        MissingDependencyError: SciPy is not installed.
    """
    if not margin >= 0:
        raise ConfigError(f"margin must be at least 0, got {margin}")
    peaks: dict[tuple[int, int], int] = {}
    for item in measurements:
        if item.peak_bytes:
            peaks[item.shape] = max(peaks.get(item.shape, 0), item.peak_bytes)
    if not peaks:
        return None
    size, longest = np.array(list(peaks), np.int64).T
    rows = design(StepTime(fixed_seconds=1.0), size, longest)
    rows = rows / np.array(list(peaks.values()), np.float64)[:, None]
    scale = rows.max(axis=0)
    found = _upper_bound(rows / scale)
    fixed, linear, squared = (float(value) for value in found / scale)
    slack = float(np.mean(rows / scale @ found) - 1)
    return MemoryFit(
        fixed_bytes=fixed,
        bytes_per_token=linear,
        bytes_per_token_squared=squared,
        margin=float(margin),
        relative_slack=max(slack, 0.0),
    )


def _upper_bound(rows: Float64Array) -> Float64Array:
    """The x >= 0 with ``rows @ x >= 1`` and the least sum of ``rows @ x``."""
    require_scipy()
    from scipy.optimize import linprog

    solved = linprog(rows.sum(axis=0), A_ub=-rows, b_ub=-np.ones(len(rows)), method="highs")
    assert solved.success, solved.message  # feasible (scale any column up) and bounded (by 0)
    found: Float64Array = solved.x
    # The solver meets its bounds to about 1e-9; the bound shall hold exactly.
    return found / min(float((rows @ found).min()), 1.0)
