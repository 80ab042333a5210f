"""Many batches at once, laid one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.core.kernels import kernel
from lengthwise.core.kernels.fixed import place_of_batch, rank_of_batch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array


@kernel
def copy_batches(
    order: npt.NDArray[Any],
    starts: Int64Array,
    edges: Int64Array,
    out: npt.NDArray[Any],
) -> None:
    """Copy batch ``b`` from ``order[starts[b]:]`` to ``out[edges[b]:edges[b + 1]]``."""
    for batch in range(starts.size):
        source = starts[batch] - edges[batch]
        for place in range(edges[batch], edges[batch + 1]):
            out[place] = order[source + place]


@kernel
def place_some(
    num_batches: int,
    per_unit: int,
    per_step: int,
    key: np.uint64,
    groups: Int64Array,
    tails: Int64Array,
    places: Int64Array,
) -> None:
    """Group, place and size of some batches of an epoch of fixed sizes.

    Args:
        num_batches: batches of the whole epoch.
        per_unit: see :func:`rank_of_batch`.
        per_step: likewise.
        key: likewise.
        groups: see :func:`place_of_batch`.
        tails: likewise.
        places: column 0 holds the batches' numbers; all is overwritten; shape (n, 3).
    """
    for i in range(len(places)):
        rank = rank_of_batch(places[i, 0], num_batches, per_unit, per_step, key)
        group, first, size = place_of_batch(rank, groups, tails)
        places[i, 0], places[i, 1], places[i, 2] = group, first, size
