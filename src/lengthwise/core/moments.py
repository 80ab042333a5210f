"""A per-sample quantity summed up by batch, by step and over the data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import DataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Sums and standard deviations (population) of a per-sample quantity.

    Floating-point quantities are measured in units of their largest magnitude, so that squares
    neither overflow nor vanish; every number made from moments is a ratio in which that cancels.

    Attributes:
        sums: of each batch, shape (B,).
        stds: inside each batch, shape (B,).
        mean: over the samples that the batches hold; 0 without samples.
        std: likewise; exactly 0 where the quantity does not vary.
    """

    sums: Floats
    stds: Floats
    mean: float
    std: float

    @classmethod
    def of(cls, batches: Batches, values: npt.ArrayLike) -> Moments:
        """Sum up ``values``, shape (N,), over ``batches``.

        Raises:
            DataError: ``values`` is too short, not numeric, or not finite.
        """
        from lengthwise.core.kernels.diversity import batch_sums_and_stds, spread_around

        array = _check_values(batches, values)
        sums, stds = np.empty(len(batches)), np.empty(len(batches))
        where = batches.order, batches.starts, batches.sizes
        batch_sums_and_stds(*where, array, sums, stds)
        count = int(batches.sizes.sum())
        if not count:
            return cls(sums, stds, 0.0, 0.0)
        mean = float(sums.sum()) / count
        std = float(np.sqrt(spread_around(*where, array, mean) / count))
        # Where nothing varies, the rounded mean leaves a few units in the last place, not 0.
        return cls(sums, stds, mean, std if std > 1e-12 * abs(mean) else 0.0)


def by_step(amounts: npt.NDArray[Any], batches_per_step: int) -> npt.NDArray[Any]:
    """Sums over whole steps, shape (steps,); over all batches where they do not fill one."""
    whole = amounts.size // batches_per_step * batches_per_step
    if not whole:
        return np.array([amounts.sum()]) if amounts.size else amounts
    sums: npt.NDArray[Any] = amounts[:whole].reshape(-1, batches_per_step).sum(axis=1)
    return sums


def num_slots(batches: Batches) -> int:
    """Entries that a per-sample array needs for ``batches``."""
    return int(batches.order.max()) + 1 if batches.order.size else 0


def check_finite(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return ``array``, or raise :class:`DataError` for its first NaN or infinity."""
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        row = int(np.argmin(np.isfinite(array)))
        raise DataError(f"{name} must be finite, got {array[row]} at position {row:,}")
    return array


def _check_values(batches: Batches, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """A per-sample array that kernels may read without looking: long enough, and finite."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise DataError(
            f"a per-sample array must hold numbers in one dimension, "
            f"got shape {array.shape} of {array.dtype}"
        )
    if array.size < num_slots(batches):
        raise DataError(
            f"the batches hold sample {num_slots(batches) - 1:,}, but the per-sample array has "
            f"{array.size:,} entries"
        )
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.kind != "f":
        return array.astype(np.float64 if array.dtype == np.uint64 else np.int64, copy=False)
    array = check_finite(array.astype(np.float64, copy=False), "per-sample values")
    scale = float(np.abs(array).max(initial=0.0))
    return array / scale if scale else array
