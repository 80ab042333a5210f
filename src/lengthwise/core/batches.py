"""The batches of an epoch as five flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

_ZERO = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Which samples make which batch. Batch ``b`` is ``order[starts[b] : starts[b] + sizes[b]]``.

    Attributes:
        order: sample indices, each at most once; uint32 (int64 above 2**32 samples), shape (N,).
        starts: where each batch begins in ``order``; int64, shape (B,). Batches need not lie in
            ``order`` one after the other: shuffling batches permutes ``starts``, not samples.
        sizes: samples of each batch, all >= 1; int64, shape (B,).
        padded: tokens that each sample of a batch is padded to; int64, shape (B,).
        tokens: real tokens of each batch; int64, shape (B,).
    """

    order: npt.NDArray[Any]
    starts: Int64Array
    sizes: Int64Array
    padded: Int64Array
    tokens: Int64Array

    @classmethod
    def of_table(cls, order: npt.NDArray[Any], table: Int64Array) -> Batches:
        """From a kernel's table: columns start, samples, padded length, real tokens; (B, 4)."""
        return cls(order, *np.ascontiguousarray(table.T))

    def __len__(self) -> int:
        """Number of batches."""
        return int(self.starts.size)

    def batch(self, index: int) -> Int64Array:
        """Sample indices of batch ``index``; int64, shape (sizes[index],)."""
        start = int(self.starts[index])
        return self.order[start : start + int(self.sizes[index])].astype(np.int64)

    def gather(self, indices: Int64Array) -> tuple[npt.NDArray[Any], Int64Array]:
        """Samples of the batches at ``indices``, one batch after the other.

        Returns:
            The sample indices, and edges: batch i is ``samples[edges[i] : edges[i + 1]]``.
        """
        from lengthwise.core.kernels.gather import copy_batches

        edges = np.concatenate((_ZERO, np.cumsum(self.sizes[indices])))
        samples = np.empty(int(edges[-1]), self.order.dtype)
        copy_batches(self.order, self.starts[indices], edges, samples)
        return samples, edges

    def select(self, places: Int64Array) -> Batches:
        """The batches at ``places``, in that order; samples stay where they are."""
        return Batches(
            self.order,
            self.starts[places],
            self.sizes[places],
            self.padded[places],
            self.tokens[places],
        )

    def joined(self, others: Batches) -> Batches:
        """These batches and then others of the same ``order``."""
        return Batches(
            self.order,
            np.concatenate((self.starts, others.starts)),
            np.concatenate((self.sizes, others.sizes)),
            np.concatenate((self.padded, others.padded)),
            np.concatenate((self.tokens, others.tokens)),
        )

    @property
    def padded_tokens(self) -> Int64Array:
        """Padded tokens of each batch; int64, shape (B,)."""
        return self.sizes * self.padded
