"""Many batches at once, laid one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
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
