"""Which shards of the data an epoch reads together.

Shards are often sorted by source, and then a few of them at random are lopsided. So they are ranked
by the mean length of their samples, and every group has one from each part of that ranking, at
random: the same that a stratified order does with batches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.random import Purpose, mix, stream_key

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.prepare import Prepared
    from lengthwise.core.stored import StoredLengths


def mean_lengths(lengths: StoredLengths, edges: Int64Array) -> npt.NDArray[np.float64]:
    """The mean length of each shard's samples; shape (K,).

    Args:
        lengths: of all samples.
        edges: samples before each shard, and all of them; shape (K + 1,).
    """
    sums = [
        sum(int(part.sum()) for _, part in lengths.parts(first, stop))
        for first, stop in pairwise(edges.tolist())
    ]
    return np.array(sums, np.float64) / np.diff(edges)


def shards_in_order(prepared: Prepared, epoch: int) -> Int64Array:
    """The shards in the order in which an epoch takes them; int64, shape (K,).

    Groups follow each other, all of ``shards_per_group`` shards but for the last, which has what is
    left: a random one from each of as many equal parts of the ranking. What remains of the ranking
    is cut into ``shards_per_group`` parts, of which every other group has a random one each.
    """
    from lengthwise.core.kernels.random import shuffle_rows

    ranked = np.argsort(prepared.shard_means, kind="stable")
    each = prepared.config.shards_per_group
    assert each is not None, "this plan takes no notice of shards"
    whole = (ranked.size - 1) // each
    left = ranked.size - whole * each
    key = stream_key(prepared.config.seed, epoch, Purpose.SHARDS)
    parts = [ranked.size * part // left for part in range(left + 1)]
    last = [
        first + (mix(key, part) * (stop - first) >> 64)
        for part, (first, stop) in enumerate(pairwise(parts))
    ]
    strata = np.delete(ranked, last).reshape(each, whole)
    shuffle_rows(strata, np.uint64(mix(key, left)))
    return np.concatenate((strata.T.reshape(-1), ranked[last]))


def shard_groups(prepared: Prepared, epoch: int) -> list[Int64Array]:
    """The shards of each group, in the order in which an epoch takes them."""
    order, each = shards_in_order(prepared, epoch), prepared.config.shards_per_group
    assert each is not None, "this plan takes no notice of shards"
    return [order[first : first + each] for first in range(0, order.size, each)]
