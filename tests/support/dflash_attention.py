"""Block attention the slow way: four conditions for every query and key, plain softmax in fp64.

Nothing here is shared with ``lengthwise.dflash``: documents are read column by column, and no
range of columns, chunk or tile occurs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.anchors import Anchors
from lengthwise.dflash.batch import DraftBatch

if TYPE_CHECKING:
    from lengthwise.dflash.layers import KeyValues


def lay_out(rows: list[list[int]], width: int | None = None, feature_size: int = 4) -> DraftBatch:
    """A batch with rows of documents of the given lengths, padded to ``width``; random features."""
    columns = width or max(map(sum, rows))
    documents, positions, count = [], [], 0
    for row in rows:
        ids: list[int] = []
        places: list[int] = []
        for length in row:
            ids += [count] * length
            places += range(length)
            count += 1
        padding = columns - len(ids)
        documents.append(ids + [-1] * padding)
        positions.append(places + [0] * padding)
    shape = (len(rows), columns)
    generator = torch.Generator().manual_seed(columns)
    return DraftBatch(
        input_ids=torch.randint(0, 90, shape, generator=generator),
        loss_mask=torch.tensor(documents) >= 0,
        features=torch.randn(*shape, feature_size, generator=generator),
        document_ids=torch.tensor(documents),
        position_ids=torch.tensor(positions),
        sample_ids=torch.arange(count),
    )


def anchors_at(rows: list[list[int]], missing: int = 0) -> Anchors:
    """Anchors at the given columns; ``missing`` or more per row are not kept."""
    most = max(map(len, rows)) + missing
    return Anchors(
        index=torch.tensor([row + [0] * (most - len(row)) for row in rows]),
        keep=torch.tensor([[True] * len(row) + [False] * (most - len(row)) for row in rows]),
    )


def sees(
    document: list[int],
    anchors: list[int],
    keep: list[bool],
    sizes: tuple[int, int | None],
    query: int,
    key: int,
) -> bool:
    """Whether block token ``query`` sees ``key``: a column, or from S on a block token.

    ``document`` has each column's document, ``sizes`` are of a block and of the window.
    """
    block_size, window = sizes
    columns = len(document)
    block, place = divmod(query, block_size)
    anchor = anchors[block]
    if key >= columns:
        other, other_place = divmod(key - columns, block_size)
        near = window is None or 0 <= place - other_place < window
        return other == block and near
    if not keep[block]:
        return False
    same_document = document[key] == document[anchor]
    near = window is None or anchor + place - key < window
    return same_document and key < anchor and near


def dense_mask(
    batch: DraftBatch, anchors: Anchors, block_size: int, window: int | None
) -> torch.Tensor:
    """Every query and key asked in turn; shape (R, N * B, S + N * B), bool."""
    columns = batch.document_ids.shape[1]
    queries = anchors.index.shape[1] * block_size
    rows = zip(
        batch.document_ids.tolist(), anchors.index.tolist(), anchors.keep.tolist(), strict=True
    )
    sizes = (block_size, window)
    return torch.tensor(
        [
            [[sees(*row, sizes, q, k) for k in range(columns + queries)] for q in range(queries)]
            for row in rows
        ]
    )


def plain_attention(
    queries: torch.Tensor, context: KeyValues, blocks: KeyValues, mask: torch.Tensor
) -> torch.Tensor:
    """Softmax over what is seen, in fp64, head by head."""
    keys = torch.cat((context.keys, blocks.keys), dim=2).double()
    values = torch.cat((context.values, blocks.values), dim=2).double()
    heads, group = queries.shape[1], queries.shape[1] // keys.shape[1]
    outputs = []
    for head in range(heads):
        of = head // group  # neighbouring query heads share a key head
        scores = queries[:, head].double() @ keys[:, of].transpose(1, 2)
        scores = (scores / math.sqrt(queries.shape[-1])).masked_fill(~mask, -math.inf)
        outputs.append(torch.softmax(scores, dim=-1) @ values[:, of])
    return torch.stack(outputs, dim=1)


class DenseAttention:
    """Stands in for ``BlockAttention``: a dense mask, and positions counted one by one."""

    def __init__(self, batch: DraftBatch, anchors: Anchors, block_size: int, window: int | None):
        self.masks = {
            False: dense_mask(batch, anchors, block_size, None),
            True: dense_mask(batch, anchors, block_size, window),
        }
        self.context_positions = batch.position_ids
        self.block_positions = torch.tensor(
            [
                [int(batch.position_ids[r, a]) + k for a in row for k in range(block_size)]
                for r, row in enumerate(anchors.index.tolist())
            ]
        )

    def __call__(
        self, queries: torch.Tensor, context: KeyValues, blocks: KeyValues, *, sliding: bool
    ) -> torch.Tensor:
        return plain_attention(queries, context, blocks, self.masks[sliding]).to(queries.dtype)
