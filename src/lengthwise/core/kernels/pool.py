"""How many slots a pool keeps free, length by length. Sums run in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

_NEIGHBOURS_SHARE = 128
_LEAST_NEIGHBOURS = 32


@kernel
def densities(lengths: Int64Array, counts: Int64Array) -> npt.NDArray[np.float64]:
    """Samples per token of length around each distinct length.

    The nearest neighbours' estimate: the narrowest symmetric range that holds 1/128 of all
    samples (at least 32), so that it is fine where samples are many and smooth in a thin tail.
    """
    size = lengths.size
    total = 0
    below = np.zeros(size + 1, np.int64)
    for i in range(size):
        total += counts[i]
        below[i + 1] = total
    wanted = min(total, max(_LEAST_NEIGHBOURS, total // _NEIGHBOURS_SHARE))
    out = np.empty(size, np.float64)
    reach_limit = lengths[size - 1] - lengths[0]
    for i in range(size):
        least, most = 0, reach_limit
        while least < most:
            reach = (least + most) // 2
            left = np.searchsorted(lengths, lengths[i] - reach)
            right = np.searchsorted(lengths, lengths[i] + reach, side="right")
            if below[right] - below[left] >= wanted:
                most = reach
            else:
                least = reach + 1
        left = np.searchsorted(lengths, lengths[i] - least)
        right = np.searchsorted(lengths, lengths[i] + least, side="right")
        out[i] = (below[right] - below[left]) / (2.0 * least + 1.0)
    return out


@kernel
def slots_for(
    lengths: Int64Array,
    density: npt.NDArray[np.float64],
    limits: Int64Array,
    scale: float,
    least_batches: int,
) -> Int64Array:
    """Free slots per distinct length: ``scale * n * sqrt(density)``, but some batches at least.

    Args:
        lengths: distinct lengths, shape (D,).
        density: samples per token near each, shape (D,).
        limits: as the packing kernels take them.
        scale: the common factor.
        least_batches: never fewer slots than this many batches have.
    """
    out = np.empty(lengths.size, np.int64)
    for i in range(lengths.size):
        size = _full_size(lengths[i], limits)
        wanted = min(scale * size * np.sqrt(density[i]), 2.0**40)
        out[i] = max(int(wanted), least_batches * size)
    return out


@kernel
def expected_repeats(
    lengths: Int64Array, counts: Int64Array, slots: Int64Array, limits: Int64Array
) -> float:
    """About the share of pairs that share a batch and will again in the next epoch.

    A pair of a batch of n that was dealt over a pool of S slots meets again with probability
    ``(n - 1) / (4 S)``. Among s samples of one length, whose order is new, it is not above
    ``(n - 1) / (s - 1)``. A sample of such a batch has n - 1 pairs.
    """
    repeats, pairs = 0.0, 0.0
    for i in range(lengths.size):
        mates = _full_size(lengths[i], limits) - 1.0
        again = mates / (4.0 * slots[i])
        if counts[i] > 1:
            again = min(again, mates / (counts[i] - 1.0))
        pairs += counts[i] * mates
        repeats += counts[i] * mates * min(again, 1.0)
    return repeats / pairs if pairs > 0.0 else 0.0


@kernel
def _full_size(length: int, limits: Int64Array) -> int:
    padded = (length + limits[2] - 1) // limits[2] * limits[2]
    size = max(1, min(limits[0] // padded, limits[1]))
    return int(size // limits[3] * limits[3] if size >= limits[3] else size)
