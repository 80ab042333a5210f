"""How an epoch of fixed batch sizes runs: everything that a batch is computed from.

Each group's samples are put in a row: shard group after shard group, in the epoch's order,
each permuted by a key of its own. Batches are cut from that row, so their number never changes. A
*window* is the part of the epoch that has the batches of one shard group. Without locality there is
one shard, and one window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.shards import shards_in_order

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.fixed import FixedLayout
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.prepare import Prepared

FIRST_BATCH, BATCH_SIZE, NUM_FULL, FIRST_TAIL = range(4)
"""Columns of a layout's table of groups."""
NO_REST = np.empty((0, 3), np.int64)


class Course(NamedTuple):
    """An epoch as kernels read it. G groups, M samples, K shards, W windows.

    Attributes:
        words: the last two bytes of every sample's index, group after group; uint16, shape (M,).
        blocks: where each block of 2**16 samples begins in ``words``, by group; (G, blocks + 1).
        marks: the block of every 2**16th word, and the last block; int32, (M / 2**16 + 1,).
        counts: samples of a group before each shard, in the epoch's order of shards; (G, K + 1).
        firsts: where in ``words`` each shard's samples of a group begin, likewise; (G, K).
        shards_per_group: shards whose samples are permuted together.
        keys: of each group's permutations; uint64, (G,).
        groups: see :class:`~lengthwise.core.fixed.FixedLayout`.
        tails: likewise.
        bounds: the place in the epoch at which each window begins, and the last ends; (W + 1,).
        begins: by length, the window's first batch of each group, and their number; (W, G + 1).
        cuts: batches of each group that earlier windows have; (W, G).
        per_unit: neighbours by length that run at the same time.
        per_step: units of an optimiser step if stratified, else 1.
        order_key: of the order of batches.
        first: the place in the epoch of what is batch 0 here.
        num_computed: batches that are found by their place; the others are in ``rest``.
        rest: group, first place inside it, and size of the batches at the end; (R, 3).
    """

    words: npt.NDArray[np.uint16]
    blocks: Int64Array
    marks: npt.NDArray[np.int32]
    counts: Int64Array
    firsts: Int64Array
    shards_per_group: int
    keys: npt.NDArray[np.uint64]
    groups: Int64Array
    tails: Int64Array
    bounds: Int64Array
    begins: Int64Array
    cuts: Int64Array
    per_unit: int
    per_step: int
    order_key: np.uint64
    first: int
    num_computed: int
    rest: Int64Array


def course_of(prepared: Prepared, layout: FixedLayout, epoch: int, num_replicas: int) -> Course:
    """An epoch's course; costs a key for each group, and a table of groups and shards."""
    config, index = prepared.config, prepared.index
    assert index is not None, "only plans of fixed sizes have a course"
    lockstep = config.balance != "none"
    units = config.accumulation_steps * (1 if lockstep else num_replicas)
    per_unit = num_replicas if lockstep else 1
    per_step = units if config.order == "stratified" else 1
    keys = [
        stream_key(config.seed, epoch, Purpose.FIXED, group) for group in range(prepared.tops.size)
    ]
    counts, firsts = _in_order_of_shards(prepared, epoch)
    each = firsts.shape[1] if config.shards_per_group is None else config.shards_per_group
    ends = counts[:, [*range(each, firsts.shape[1], each), firsts.shape[1]]].T
    multiple = config.accumulation_steps * num_replicas
    bounds, begins, cuts = windows(layout, ends, multiple)
    return Course(
        words=prepared.words,
        blocks=index.blocks,
        marks=index.marks,
        counts=counts,
        firsts=firsts,
        shards_per_group=each,
        keys=np.array(keys, np.uint64),
        groups=layout.groups,
        tails=layout.tails,
        bounds=bounds,
        begins=begins,
        cuts=cuts,
        per_unit=per_unit,
        per_step=per_step,
        order_key=np.uint64(stream_key(config.seed, epoch, Purpose.BATCHES)),
        first=0,
        num_computed=layout.num_batches,
        rest=NO_REST,
    )


def _in_order_of_shards(prepared: Prepared, epoch: int) -> tuple[Int64Array, Int64Array]:
    """Samples of each group before each shard, and where the shard's begin; by group."""
    if prepared.config.shards_per_group is None:
        sizes = np.diff(prepared.offsets)
        return np.column_stack((np.zeros_like(sizes), sizes)), prepared.offsets[:-1, None].copy()
    assert prepared.index is not None, "only plans of fixed sizes have a course"
    before = prepared.index.shards
    order = shards_in_order(prepared, epoch)
    sizes = np.diff(before, axis=1)[:, order]
    counts = np.zeros_like(before)
    np.cumsum(sizes, axis=1, out=counts[:, 1:])
    return counts, np.ascontiguousarray(before[:, order])


def windows(
    layout: FixedLayout, ends: Int64Array, multiple: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Which batches each window has: those whose last sample lies in its shard group.

    So that steps begin with windows, all but the last hold a multiple of batches: what is over
    goes to the next window, a share of each group.

    Args:
        layout: the epoch's sizes and counts.
        ends: samples of each group up to the end of each window; shape (W, G).
        multiple: batches of an optimiser step.

    Returns:
        ``bounds``, ``begins`` and ``cuts`` of :class:`Course`.
    """
    groups, tail_ends = layout.groups, layout.tail_ends
    done = np.minimum(ends // groups[:, BATCH_SIZE], groups[:, NUM_FULL])
    stops = np.append(groups[1:, FIRST_TAIL], tail_ends.size)
    for group, (first, stop) in enumerate(zip(groups[:, FIRST_TAIL], stops, strict=True)):
        done[:, group] += np.searchsorted(tail_ends[first:stop], ends[:, group], side="right")
    done[-1] = np.diff(np.append(groups[:, FIRST_BATCH], layout.num_batches))
    cuts = np.zeros_like(done)
    for window in range(len(done) - 1):
        there = done[window] - cuts[window]
        over = int(there.sum()) % multiple
        cuts[window + 1] = done[window] - (_shares(there, over) if over else 0)
    numbers = np.diff(cuts, axis=0, append=done[-1:])
    begins = np.zeros((len(done), len(groups) + 1), np.int64)
    np.cumsum(numbers, axis=1, out=begins[:, 1:])
    return np.concatenate(([0], np.cumsum(begins[:, -1]))), begins, cuts


def _shares(amounts: Int64Array, total: int) -> Int64Array:
    """Split a total over groups by what they have; none gives more than that."""
    shares = amounts * total // int(amounts.sum())
    order = np.argsort(shares * int(amounts.sum()) - amounts * total, kind="stable")
    shares[order[: total - int(shares.sum())]] += 1
    return shares
