"""Batch ``b`` of epoch ``e`` in constant time, from keyed permutations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.random import mix, permute

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

_LOW = np.uint64(0xFFFFFFFF)
_SHORT, _DEALT, _INSIDE, _REPLICAS = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@kernel
def rank_of_unit(unit: int, num_units: int, per_step: int, key: np.uint64) -> int:
    """Which unit, counted by rising length, stands at place ``unit`` of the epoch.

    Steps take one unit from each of ``per_step`` strata, in random order. What does not fill a
    step is taken evenly from all lengths, and comes last. ``per_step = 1`` is a plain shuffle.
    """
    steps = num_units // per_step
    left = num_units - steps * per_step
    if unit >= steps * per_step:
        place = permute(unit - steps * per_step, left, mix(key, _SHORT))
        return ((2 * place + 1) * num_units) // (2 * left)
    step, place = unit // per_step, unit % per_step
    stratum = permute(place, per_step, mix(mix(key, _DEALT), np.uint64(step)))
    inside = permute(step, steps, mix(mix(key, _INSIDE), np.uint64(stratum)))
    index = stratum * steps + inside
    low, high = 0, left
    while low < high:
        middle = (low + high) // 2
        if ((2 * middle + 1) * num_units) // (2 * left) - middle > index:
            high = middle
        else:
            low = middle + 1
    return index + low


@kernel
def rank_of_batch(
    index: int, num_batches: int, per_unit: int, per_step: int, key: np.uint64
) -> int:
    """Which batch, counted by rising length, stands at place ``index`` of the epoch.

    A unit is ``per_unit`` neighbours by length, which run at the same time on the replicas.
    """
    unit = rank_of_unit(index // per_unit, num_batches // per_unit, per_step, key)
    if per_unit == 1:
        return unit
    stream = mix(mix(key, _REPLICAS), np.uint64(unit))
    return unit * per_unit + permute(index % per_unit, per_unit, stream)


@kernel
def place_of_batch(
    rank: int,
    first_batch: Int64Array,
    batch_sizes: Int64Array,
    num_full: Int64Array,
    first_tail: Int64Array,
    tail_starts: Int64Array,
    tail_sizes: Int64Array,
) -> tuple[int, int, int]:
    """Group, first place inside it, and size of the batch of this rank by length."""
    group = np.searchsorted(first_batch, rank, side="right") - 1
    inside = rank - first_batch[group]
    if inside < num_full[group]:
        return group, inside * batch_sizes[group], batch_sizes[group]
    tail = first_tail[group] + inside - num_full[group]
    return group, tail_starts[tail], tail_sizes[tail]


@kernel
def fill_batch(
    words: npt.NDArray[np.uint64],
    offsets: Int64Array,
    group: int,
    start: int,
    key: np.uint64,
    out: npt.NDArray[np.uint32],
) -> None:
    """Write the sample indices at places ``start ...`` of the group's keyed permutation."""
    lo = offsets[group]
    size = offsets[group + 1] - lo
    for i in range(out.size):
        out[i] = np.uint32(words[lo + permute(start + i, size, key)] & _LOW)


@kernel
def fill_all(
    words: npt.NDArray[np.uint64],
    offsets: Int64Array,
    groups: Int64Array,
    places: Int64Array,
    starts: Int64Array,
    sizes: Int64Array,
    first: int,
    last: int,
    keys: npt.NDArray[np.uint64],
    order: npt.NDArray[np.uint32],
) -> None:
    """Fill batches ``first .. last - 1`` of a whole epoch into ``order``."""
    for batch in range(first, last):
        out = order[starts[batch] : starts[batch] + sizes[batch]]
        fill_batch(words, offsets, groups[batch], places[batch], keys[groups[batch]], out)


@kernel
def place_all(
    per_unit: int,
    per_step: int,
    key: np.uint64,
    first_batch: Int64Array,
    batch_sizes: Int64Array,
    num_full: Int64Array,
    first_tail: Int64Array,
    tail_starts: Int64Array,
    tail_sizes: Int64Array,
    groups: Int64Array,
    places: Int64Array,
    sizes: Int64Array,
) -> None:
    """Group, place and size of every batch of an epoch, in the epoch's order."""
    for index in range(groups.size):
        rank = rank_of_batch(index, groups.size, per_unit, per_step, key)
        groups[index], places[index], sizes[index] = place_of_batch(
            rank, first_batch, batch_sizes, num_full, first_tail, tail_starts, tail_sizes
        )
