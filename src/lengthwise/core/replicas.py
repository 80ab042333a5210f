"""The same number of batches for every replica: split batches, or drop the surplus."""

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
    batches: Batches,
    num_replicas: int,
    *,
    drop_last: bool,
    lengths: Int64Array,
    pad_to: int,
    least_padded: Int64Array,
    seed: int,
    epoch: int,
) -> Dealt:
    """Make the number of batches a multiple of ``num_replicas``.

    Args:
        batches: the epoch's batches.
        num_replicas: replicas that each need as many batches.
        drop_last: drop the surplus, chosen at random, instead of splitting the largest batches.
        lengths: tokens of each sample, shape (N,).
        pad_to: padded lengths are multiples of this.
        least_padded: padding floor of each batch (0, or its bucket's top), shape (B,).
        seed: the plan's seed.
        epoch: the epoch.

    Raises:
        PlanError: fewer samples than replicas, or dropping would leave nothing.
    """
    surplus = len(batches) % num_replicas
    none = batches.select(np.empty(0, np.int64))
    if surplus == 0:
        return Dealt(batches, 0, none)
    if drop_last:
        if len(batches) < num_replicas:
            raise PlanError(
                f"drop_last=True leaves nothing: {len(batches):,} batches do not give each of "
                f"{num_replicas:,} replicas one. Use drop_last=False or fewer replicas."
            )
        order = _random_order(len(batches), seed, epoch)
        kept, gone = np.sort(order[surplus:]), np.sort(order[:surplus])
        return Dealt(batches.select(kept), 0, batches.select(gone))
    missing = num_replicas - surplus
    return Dealt(_split(batches, missing, lengths, pad_to, least_padded), missing, none)


def _random_order(size: int, seed: int, epoch: int) -> Int64Array:
    from lengthwise.core.kernels.random import shuffle_range  # noqa: PLC0415

    order = np.arange(size, dtype=np.int64)
    shuffle_range(order, 0, size, np.uint64(stream_key(seed, epoch, Purpose.REMAINDER)))
    return order


def _split(
    batches: Batches, missing: int, lengths: Int64Array, pad_to: int, least_padded: Int64Array
) -> Batches:
    """Cut the batches of most samples in halves until there are ``missing`` more of them."""
    num_samples = int(batches.sizes.sum())
    if num_samples < len(batches) + missing:
        raise PlanError(
            f"{num_samples:,} samples cannot give each of the replicas as many batches: "
            f"{len(batches) + missing:,} are needed. Use fewer replicas, or drop_last=True."
        )
    starts, sizes, least = batches.starts, batches.sizes, least_padded
    padded, tokens = batches.padded, batches.tokens
    while missing:
        by_size = np.argsort(-sizes, kind="stable")
        largest = by_size[: min(missing, int(np.count_nonzero(sizes >= 2)))]
        halves = sizes[largest] // 2
        starts = np.concatenate((starts, starts[largest] + sizes[largest] - halves))
        sizes = np.concatenate((sizes, halves))
        sizes[largest] -= halves
        least = np.concatenate((least, least[largest]))
        changed = np.concatenate((largest, np.arange(len(padded), starts.size)))
        padded = np.concatenate((padded, padded[largest]))
        tokens = np.concatenate((tokens, tokens[largest]))
        padded[changed], tokens[changed] = measure_batches(
            batches.order, starts[changed], sizes[changed], lengths, pad_to, least[changed]
        )
        missing -= largest.size
    return Batches(batches.order, starts, sizes, padded, tokens)


def measure_batches(
    order: npt.NDArray[Any],
    starts: Int64Array,
    sizes: Int64Array,
    lengths: Int64Array,
    pad_to: int,
    least_padded: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Padded length and real tokens of each batch, from the lengths of its samples."""
    from lengthwise.core.kernels.pack import renew  # noqa: PLC0415

    padded, tokens = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64)
    renew(order, starts, sizes, lengths, pad_to, least_padded, padded, tokens)
    return padded, tokens
