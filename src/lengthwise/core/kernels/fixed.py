"""Batch ``b`` of epoch ``e`` in constant time, from keyed permutations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.random import mix, permute, permute_range

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

_LOW = np.uint64(0xFFFFFFFF)
FIRST_BATCH, BATCH_SIZE, NUM_FULL, FIRST_TAIL = range(4)
"""Columns of a layout's table of groups."""
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
        place = int(permute(unit - steps * per_step, left, mix(key, _SHORT)))
        return ((2 * place + 1) * num_units) // (2 * left)
    step, place = unit // per_step, unit % per_step
    stratum = 0
    if per_step > 1:
        stratum = int(permute(place, per_step, mix(mix(key, _DEALT), np.uint64(step))))
    inside = int(permute(step, steps, mix(mix(key, _INSIDE), np.uint64(stratum))))
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
    return unit * per_unit + int(permute(index % per_unit, per_unit, stream))


@kernel
def place_of_batch(rank: int, groups: Int64Array, tails: Int64Array) -> tuple[int, int, int]:
    """Group, first place inside it, and size of the batch of this rank by length.

    Args:
        rank: of the batch by length.
        groups: one row a group: rank of its first batch, samples of a full batch, number of full
            batches, its first row in ``tails``; shape (G, 4).
        tails: first place inside its group and samples of every batch that is not full; (T, 2).
    """
    group = int(np.searchsorted(groups[:, FIRST_BATCH], rank, side="right")) - 1
    inside = rank - int(groups[group, FIRST_BATCH])
    size, num_full = int(groups[group, BATCH_SIZE]), int(groups[group, NUM_FULL])
    if inside < num_full:
        return group, inside * size, size
    tail = int(groups[group, FIRST_TAIL]) + inside - num_full
    return group, int(tails[tail, 0]), int(tails[tail, 1])


@kernel
def fill_batch(
    words: npt.NDArray[Any],
    offsets: Int64Array,
    group: int,
    start: int,
    key: np.uint64,
    out: npt.NDArray[np.uint32],
) -> None:
    """Write the sample indices at places ``start ...`` of the group's keyed permutation."""
    lo = offsets[group]
    size = offsets[group + 1] - lo
    permute_range(start, size, key, out)
    # A loop of its own: a processor looks up many words at once, but not between permutations.
    for i in range(out.size):
        out[i] = np.uint32(words[lo + out[i]] & _LOW)


@kernel
def fill_all(
    words: npt.NDArray[Any],
    offsets: Int64Array,
    places: Int64Array,
    starts: Int64Array,
    keys: npt.NDArray[np.uint64],
    order: npt.NDArray[np.uint32],
) -> None:
    """Fill a run of batches into ``order``.

    Args:
        words: samples, group after group.
        offsets: where groups begin and end.
        places: group, first place, size of each batch, shape (B, 3).
        starts: where each batch begins in ``order``, shape (B,).
        keys: the key of each group's permutation.
        order: written.
    """
    for batch in range(len(places)):
        group, first, size = places[batch, 0], places[batch, 1], places[batch, 2]
        out = order[starts[batch] : starts[batch] + size]
        fill_batch(words, offsets, group, first, keys[group], out)


@kernel
def place_all(
    per_unit: int,
    per_step: int,
    key: np.uint64,
    groups: Int64Array,
    tails: Int64Array,
    places: Int64Array,
) -> None:
    """Group, place and size of every batch of an epoch, in the epoch's order; shape (B, 3)."""
    for index in range(len(places)):
        rank = rank_of_batch(index, len(places), per_unit, per_step, key)
        group, first, size = place_of_batch(rank, groups, tails)
        places[index, 0], places[index, 1], places[index, 2] = group, first, size
