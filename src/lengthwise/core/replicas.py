"""The same number of batches for every replica, or epoch: split batches, or drop the surplus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.random import Purpose, stream_key
from lengthwise.errors import PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.prepare import Prepared


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Batches whose number the replicas divide, and what that took.

    Attributes:
        batches: what is left, or grew.
        num_split: batches that were cut in two.
        dropped: the batches that were dropped.
    """

    batches: Batches
    num_split: int
    dropped: Batches


def fit_to_replicas(
    batches: Batches, floors: Int64Array, prepared: Prepared, num_replicas: int, epoch: int
) -> Dealt:
    """Make the number of batches a multiple of ``num_replicas``.

    With ``drop_last`` the surplus is dropped, chosen at random; else the batches of most samples
    are cut in two until the number fits, so that every sample is seen once.

    Args:
        batches: the epoch's batches.
        floors: tokens that each batch is padded to at least, shape (B,).
        prepared: the set-up they come from.
        num_replicas: replicas that each need as many batches.
        epoch: the epoch.

    Raises:
        PlanError: fewer samples than replicas, or dropping would leave nothing.
    """
    surplus = len(batches) % num_replicas
    none = batches.select(np.empty(0, np.int64))
    if surplus == 0:
        return Dealt(batches, 0, none)
    if prepared.config.drop_last:
        if len(batches) < num_replicas:
            raise PlanError(
                f"drop_last=True leaves nothing: {len(batches):,} batches do not give each of "
                f"{num_replicas:,} replicas one. Use drop_last=False or fewer replicas."
            )
        order = _random_order(len(batches), prepared.config.seed, epoch)
        kept, gone = np.sort(order[surplus:]), np.sort(order[:surplus])
        return Dealt(batches.select(kept), 0, batches.select(gone))
    missing = num_replicas - surplus
    return Dealt(_split(batches, missing, floors, prepared), missing, none)


def fit_to_number(
    batches: Batches, floors: Int64Array, prepared: Prepared, num_batches: int, epoch: int
) -> Dealt:
    """Cut batches in two until there are ``num_batches``; arguments as for the replicas.

    Raises:
        PlanError: there are more already, or fewer samples than that.
    """
    missing = num_batches - len(batches)
    if missing < 0:
        raise PlanError(
            f"epoch {epoch:,} packs into {len(batches):,} batches, more than the "
            f"config's num_batches allows ({num_batches:,}). Give at least {len(batches):,}, or "
            f"leave it out."
        )
    none = batches.select(np.empty(0, np.int64))
    parted = _split(batches, missing, floors, prepared) if missing else batches
    return Dealt(parted, missing, none)


def _random_order(size: int, seed: int, epoch: int) -> Int64Array:
    from lengthwise.core.kernels.random import shuffle_range

    order = np.arange(size, dtype=np.int64)
    shuffle_range(order, 0, size, np.uint64(stream_key(seed, epoch, Purpose.REMAINDER)))
    return order


def _split(batches: Batches, missing: int, floors: Int64Array, prepared: Prepared) -> Batches:
    """Cut the batches of most samples in halves until there are ``missing`` more of them."""
    num_samples = int(batches.sizes.sum())
    if num_samples < len(batches) + missing:
        raise PlanError(
            f"{num_samples:,} samples cannot give each of the replicas as many batches: "
            f"{len(batches) + missing:,} are needed. Use fewer replicas, or drop_last=True."
        )
    multiple = prepared.config.limits.batch_size_multiple_of
    starts, sizes = batches.starts, batches.sizes.copy()
    cut = np.zeros(sizes.size, np.bool_)
    while missing:
        largest = np.argsort(-sizes, kind="stable")
        largest = largest[: min(missing, int(np.count_nonzero(sizes >= 2)))]
        halves = second_half(sizes[largest], multiple)
        sizes[largest] -= halves
        starts = np.concatenate((starts, starts[largest] + sizes[largest]))
        sizes = np.concatenate((sizes, halves))
        floors = np.concatenate((floors, floors[largest]))
        cut[largest] = True
        cut = np.concatenate((cut, np.ones(largest.size, np.bool_)))
        missing -= largest.size
    whole = batches.select(np.flatnonzero(~cut[: len(batches)]))
    parts = measure_batches(batches.order, starts[cut], sizes[cut], floors[cut], prepared)
    return whole.joined(parts)


_AT_ONCE = 1 << 14
"""Batches whose lengths are fetched at once where they do not lie in one array."""


def second_half(sizes: Int64Array | np.int64, multiple: int) -> Int64Array:
    """Half of each size, rounded down to a multiple where that leaves something.

    Where ``sizes`` are multiples or below one, so are both parts.
    """
    halves = np.asarray(sizes // 2)
    return np.where(halves >= multiple, halves // multiple * multiple, halves)


def measure_batches(
    order: npt.NDArray[Any],
    starts: Int64Array,
    sizes: Int64Array,
    floors: Int64Array,
    prepared: Prepared,
) -> Batches:
    """Batches from where they lie in ``order``; padded length and tokens from their samples."""
    from lengthwise.core.kernels.pack import measure_table

    table = np.column_stack((starts, sizes, starts, starts))
    pad_to = prepared.config.limits.pad_to_multiple_of
    lengths = prepared.lengths.array
    if lengths is not None:
        measure_table(order, lengths, pad_to, floors, table)
        return Batches.of_table(order, table)
    for first in range(0, len(table), _AT_ONCE):
        part = table[first : first + _AT_ONCE].copy()
        places = np.repeat(part[:, 0] - np.cumsum(part[:, 1]) + part[:, 1], part[:, 1])
        own = prepared.lengths.take(order[places + np.arange(places.size)])
        part[:, 0] = np.cumsum(part[:, 1]) - part[:, 1]
        here = slice(first, first + len(part))
        measure_table(np.arange(own.size, dtype=np.uint32), own, pad_to, floors[here], part)
        table[here, 2:] = part[:, 2:]
    return Batches.of_table(order, table)
