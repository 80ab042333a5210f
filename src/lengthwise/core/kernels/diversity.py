"""Passes over the samples of all batches: sums, spreads, pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Floats = npt.NDArray[np.float64]


@kernel
def label_samples(
    order: npt.NDArray[Any], starts: Int64Array, sizes: Int64Array, labels: npt.NDArray[Any]
) -> None:
    """Write each sample's batch number into ``labels``; samples of no batch stay untouched."""
    for batch in range(starts.size):
        for place in range(starts[batch], starts[batch] + sizes[batch]):
            labels[order[place]] = batch


@kernel
def count_repeated_pairs(
    order: npt.NDArray[Any],
    starts: Int64Array,
    sizes: Int64Array,
    labels: npt.NDArray[Any],
    num_labels: int,
) -> int:
    """How many pairs that share a batch here also share a label; label -1 is shared by nobody."""
    seen = np.zeros(num_labels, np.int64)
    pairs = 0
    for batch in range(starts.size):
        stop = starts[batch] + sizes[batch]
        for place in range(starts[batch], stop):
            label = labels[order[place]]
            if label >= 0:
                pairs += seen[label]
                seen[label] += 1
        for place in range(starts[batch], stop):
            label = labels[order[place]]
            if label >= 0:
                seen[label] = 0
    return pairs


@kernel
def batch_sums_and_stds(
    order: npt.NDArray[Any],
    starts: Int64Array,
    sizes: Int64Array,
    values: npt.NDArray[Any],
    sums: Floats,
    stds: Floats,
) -> None:
    """Sum and population standard deviation of ``values`` in each batch.

    The deviation takes a second pass over the batch: subtracting squares would cancel.
    """
    for batch in range(starts.size):
        stop = starts[batch] + sizes[batch]
        total = 0.0
        for place in range(starts[batch], stop):
            total += values[order[place]]
        mean = total / sizes[batch]
        squares = 0.0
        for place in range(starts[batch], stop):
            deviation = values[order[place]] - mean
            squares += deviation * deviation
        sums[batch] = total
        stds[batch] = np.sqrt(squares / sizes[batch])


@kernel
def spread_around(
    order: npt.NDArray[Any],
    starts: Int64Array,
    sizes: Int64Array,
    values: npt.NDArray[Any],
    mean: float,
) -> float:
    """Sum of ``(value - mean)**2`` over all samples of all batches."""
    squares = 0.0
    for batch in range(starts.size):
        for place in range(starts[batch], starts[batch] + sizes[batch]):
            deviation = values[order[place]] - mean
            squares += deviation * deviation
    return squares
