"""Blocks by the length of the document they stand in, so that losses can be told apart by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.anchors import Anchors
    from lengthwise.dflash.batch import DraftBatch


@dataclass(frozen=True, slots=True, eq=False)
class LengthClasses:
    """The length class of every block of a batch.

    Attributes:
        index: classes, from 0 to ``num_classes - 1``; anything where there is no block; shape
            (R, N), int64, on the CPU.
        num_classes: how many there are.
    """

    index: torch.Tensor
    num_classes: int

    def of(self, blocks: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Classes of some blocks, given as places in (R * N,), on a device."""
        return self.index.flatten()[blocks].to(device, non_blocking=True)


def length_classes(batch: DraftBatch, anchors: Anchors, boundaries: Sequence[int]) -> LengthClasses:
    """Find every block's class; on the CPU, nothing waits for a GPU.

    Args:
        batch: the documents.
        anchors: where blocks begin.
        boundaries: K + 1 rising lengths; class k holds documents of ``[b[k], b[k + 1])`` tokens.
            Those below the first and from the last on belong to the nearest class.
    """
    documents = batch.document_ids
    lengths = torch.bincount(documents[documents >= 0], minlength=1)
    inner = torch.tensor(list(boundaries[1:-1]), dtype=torch.int64)
    of_document = torch.bucketize(lengths, inner, right=True)
    # An anchor that is not kept points anywhere, maybe to padding.
    own = documents.gather(1, anchors.index).clamp(min=0)
    return LengthClasses(of_document[own], len(boundaries) - 1)
