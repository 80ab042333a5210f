"""Plans that need few shards at a time.

Every epoch puts the shards into groups (:mod:`lengthwise.core.shards`). Each group is planned as if
it were the whole data set: shuffled, packed, put in order. What a group leaves over when optimiser
steps are made joins the first of the next group, so that steps stay whole: then two are needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.order import arrange
from lengthwise.core.packing import pack_epoch
from lengthwise.core.pool import MOST_REPEATS, size_pool
from lengthwise.core.prepare import prepare
from lengthwise.core.random import Purpose, derive_key, stream_key
from lengthwise.core.shards import shard_groups
from lengthwise.core.threads import run_all

if TYPE_CHECKING:
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.order import OrderRule
    from lengthwise.core.prepare import Prepared


def pool_slots(prepared: Prepared, *, again: float = 1.0) -> Int64Array | None:
    """Free slots of the pool for each group; None where there is no pool.

    Args:
        prepared: the samples.
        again: the chance that two of these samples are planned together in the next epoch too.
    """
    config = prepared.config
    if config.strategy != "pooled":
        return None
    histogram = LengthHistogram(prepared.tops, np.diff(prepared.offsets))
    limits, target = config.limits, config.target_efficiency
    return size_pool(histogram, limits, target, MOST_REPEATS / again).slots


def pack_shard_groups(
    prepared: Prepared, floors: Int64Array, epoch: int, num_threads: int
) -> Batches:
    """Plan each group of shards by itself; the groups' samples lie one after the other.

    Args:
        prepared: the set-up of the whole data set.
        floors: tokens that batches of each of its groups (by length) are padded to at least.
        epoch: the epoch.
        num_threads: threads to use; the result does not depend on it.
    """
    groups = shard_groups(prepared, epoch)
    tasks = [
        partial(_pack_group, prepared, floors, epoch, number, shards)
        for number, shards in enumerate(groups)
    ]
    packed = [batches for batches in run_all(tasks, num_threads) if batches is not None]
    begins = np.cumsum([0, *(batches.order.size for batches in packed)])
    return Batches(
        np.concatenate([batches.order for batches in packed]),
        np.concatenate([b.starts + begin for b, begin in zip(packed, begins, strict=False)]),
        np.concatenate([batches.sizes for batches in packed]),
        np.concatenate([batches.padded for batches in packed]),
        np.concatenate([batches.tokens for batches in packed]),
    )


def _pack_group(
    prepared: Prepared, floors: Int64Array, epoch: int, number: int, shards: Int64Array
) -> Batches | None:
    edges, config = prepared.shard_edges, prepared.config
    parts = [prepared.lengths.read(int(edges[s]), int(edges[s + 1])) for s in shards]
    lengths = np.concatenate(parts)
    most = config.limits.longest_allowed
    if config.oversize == "drop" and int(lengths.min()) > most:
        return None
    seed = stream_key(config.seed, epoch, Purpose.SHARDS, number + 1)
    own = prepare(lengths, replace(config, shards_per_group=None, seed=seed), 1)
    slots = pool_slots(own, again=_chance_again(edges.size - 1, shards.size))
    wide = np.zeros_like(own.tops)
    if config.pad_to_boundary:
        wide = floors[np.searchsorted(prepared.tops, own.tops)]
    batches = pack_epoch(own, slots, wide, epoch=epoch, num_threads=1)
    samples = np.concatenate([np.arange(edges[s], edges[s + 1], dtype=np.uint32) for s in shards])
    return replace(batches, order=samples[batches.order])


def _chance_again(num_shards: int, in_group: int) -> float:
    """That two samples of a group are in one group in the next epoch too, shards being alike."""
    if num_shards == 1:
        return 1.0
    same = 1 / in_group
    return same + (1 - same) * (in_group - 1) / (num_shards - 1)


def windows_of(batches: Batches, prepared: Prepared, epoch: int) -> Int64Array:
    """The group of shards that each batch is of, counted in the epoch's order; shape (B,)."""
    edges = prepared.shard_edges
    planned = np.diff(edges)
    if prepared.config.oversize == "drop":
        planned = planned - np.diff(np.searchsorted(prepared.oversize, edges))
    sizes = [int(planned[shards].sum()) for shards in shard_groups(prepared, epoch)]
    return np.searchsorted(np.cumsum(sizes), batches.starts, side="right")


def arrange_windows(
    batches: Batches,
    windows: Int64Array,
    bucket_ids: Int64Array,
    *,
    rule: OrderRule,
    key: int,
) -> Int64Array:
    """As :func:`arrange`, but the batches of one window after those of another.

    Every optimiser step has batches of one window, but for the one between two windows: what the
    earlier has left over, drawn at random, is joined by random ones of the later (and of the next,
    where windows have fewer batches than a step).

    Args:
        batches: of the epoch.
        windows: of each batch, from 0; shape (B,).
        bucket_ids: as for :func:`arrange`.
        rule: likewise.
        key: likewise.

    Returns:
        A permutation of ``range(B)``.
    """
    padded = batches.padded_tokens

    def ordered(places: Int64Array, number: int) -> Int64Array:
        found = arrange(
            batches.tokens[places],
            batches.sizes[places],
            padded[places],
            bucket_ids[places],
            rule=rule,
            key=derive_key(key, 3, number),
        )
        return places[found]

    whole, waiting, result = rule.batches_per_step, np.empty(0, np.int64), []
    by_window = np.argsort(windows, kind="stable")
    ends = np.searchsorted(windows[by_window], np.arange(int(windows.max(initial=-1)) + 2))
    for number, (first, last) in enumerate(pairwise(ends.tolist())):
        places = _shuffled(by_window[first:last], derive_key(key, 4, number))
        if waiting.size:
            missing = whole - waiting.size
            waiting = np.concatenate((waiting, places[:missing]))
            places = places[missing:]
            if waiting.size < whole:
                continue
            result.append(ordered(waiting, 2 * number))
        used = places.size // whole * whole
        result.append(ordered(places[:used], 2 * number + 1))
        waiting = places[used:]
    result.append(ordered(waiting, -1))
    return np.concatenate(result)


def _shuffled(places: Int64Array, key: int) -> Int64Array:
    from lengthwise.core.kernels.random import shuffle_range

    found = places.copy()
    shuffle_range(found, 0, found.size, np.uint64(key))
    return found
