"""Batch ``b`` of epoch ``e`` in constant time, from keyed permutations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.course import BATCH_SIZE, FIRST_TAIL, NUM_FULL
from lengthwise.core.index import BLOCK_BITS
from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.random import mix, permute, permute_range

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.course import Course
    from lengthwise.core.limits import Int64Array

_SHORT, _DEALT, _INSIDE, _REPLICAS = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_WINDOW = np.uint64(5)


@kernel
def last_at_most(row: Int64Array, low: int, high: int, value: int) -> int:
    """The last place from ``low`` to ``high`` of a rising row whose entry is at most ``value``.

    ``row[low]`` is at most ``value``.
    """
    length = high - low + 1
    while length > 1:  # no branch in it: the processor need not guess
        half = length // 2
        low += half if row[low + half] <= value else 0
        length -= half
    return low


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
def place_of_batch(index: int, course: Course) -> tuple[int, int, int]:
    """Group, first place inside it, and size of the batch at a place of the epoch.

    The place's window is looked up, then which of the window's batches by length stands there,
    then the group that has it.
    """
    if index >= course.num_computed:
        row = index - course.num_computed
        return int(course.rest[row, 0]), int(course.rest[row, 1]), int(course.rest[row, 2])
    index += course.first
    num_windows = course.bounds.size - 1
    window = last_at_most(course.bounds, 0, num_windows - 1, index)
    key = course.order_key
    if window > 0:
        key = mix(mix(key, _WINDOW), np.uint64(window))
    start = course.bounds[window]
    rank = rank_of_batch(
        index - start, course.bounds[window + 1] - start, course.per_unit, course.per_step, key
    )
    begins, groups = course.begins[window], course.groups
    group = last_at_most(begins, 0, groups.shape[0] - 1, rank)
    inside = int(course.cuts[window, group] + rank - begins[group])
    size, num_full = int(groups[group, BATCH_SIZE]), int(groups[group, NUM_FULL])
    if inside < num_full:
        return group, inside * size, size
    tail = int(groups[group, FIRST_TAIL]) + inside - num_full
    return group, int(course.tails[tail, 0]), int(course.tails[tail, 1])


@kernel
def fill_batch(group: int, start: int, course: Course, out: npt.NDArray[Any]) -> None:
    """Write the sample indices at places ``start ...`` of a group's order in this epoch.

    Shard groups follow each other; the samples of each are permuted by a key of its own.
    """
    counts, firsts = course.counts[group], course.firsts[group]
    num_shards, each = firsts.size, course.shards_per_group
    done = 0
    while done < out.size:
        place = start + done
        first = last_at_most(counts, 0, num_shards - 1, place) // each * each
        last = min(first + each, num_shards)
        lo = counts[first]
        number = min(out.size - done, counts[last] - place)
        key = course.keys[group]
        if first > 0:
            key = mix(key, np.uint64(first // each))
        part = out[done : done + number]
        permute_range(place - lo, counts[last] - lo, key, part)
        for i in range(number):
            inside = lo + int(part[i])
            shard = last_at_most(counts, first, last - 1, inside)
            part[i] = firsts[shard] + inside - counts[shard]
        done += number
    # Loops of their own: a processor looks up many words at once, but not between permutations.
    blocks, marks, words = course.blocks[group], course.marks, course.words
    begin, end = blocks[0], blocks[-1]
    for i in range(out.size):
        place = int(out[i])
        mark = place >> BLOCK_BITS
        low = int(marks[mark]) if mark << BLOCK_BITS >= begin else 0
        high = int(marks[mark + 1]) if (mark + 1) << BLOCK_BITS < end else blocks.size - 2
        block = last_at_most(blocks, low, high, place)
        out[i] = (np.int64(block) << BLOCK_BITS) + np.int64(words[place])


@kernel
def batch_at(index: int, course: Course) -> Int64Array:
    """The sample indices of one batch."""
    group, start, size = place_of_batch(index, course)
    out = np.empty(size, np.int64)
    fill_batch(group, start, course, out)
    return out


@kernel
def place_some(course: Course, places: Int64Array) -> None:
    """Group, first place and size of the batches whose numbers are in column 0; shape (n, 3)."""
    for i in range(len(places)):
        group, first, size = place_of_batch(places[i, 0], course)
        places[i, 0], places[i, 1], places[i, 2] = group, first, size


@kernel
def fill_all(
    course: Course, places: Int64Array, starts: Int64Array, order: npt.NDArray[np.uint32]
) -> None:
    """Fill a run of batches into ``order``.

    Args:
        course: the epoch's.
        places: group, first place, size of each batch, shape (B, 3).
        starts: where each batch begins in ``order``, shape (B,).
        order: written.
    """
    for batch in range(len(places)):
        group, first, size = places[batch, 0], places[batch, 1], places[batch, 2]
        fill_batch(group, first, course, order[starts[batch] : starts[batch] + size])
