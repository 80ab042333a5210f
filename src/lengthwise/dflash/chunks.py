"""Block attention by PyTorch's scaled dot product, a chunk of blocks at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from lengthwise.dflash.visibility import own_block_mask

if TYPE_CHECKING:
    from lengthwise.dflash.layers import KeyValues
    from lengthwise.dflash.visibility import Visibility

MAX_SCORES = 1 << 24
"""Query-key pairs of one call, at most, where chunks can be made that small."""

# What a call costs beside its scores, in scores: launches on a GPU weigh far more than on a CPU.
_CALL_COST = {"cpu": 1 << 14, "cuda": 1 << 18}
_ALIGNMENT = 16  # rows of masks begin at multiples of this, as the GPU's kernels want them


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some blocks of some rows, and the columns that any of them sees."""

    rows: slice
    blocks: slice
    columns: slice


class Chunks:
    """Attention of all blocks of a batch, by one kind of layer.

    A chunk takes the queries of some neighbouring blocks, the one slice of context that
    any of them sees, and these blocks' own keys. So nothing of size ``(N * B) x (N * B)`` exists,
    and a padded or packed row costs what its anchors see.

    How many blocks make a chunk, a power of two, and whether a chunk takes all rows together or one
    row, is what costs the least by count: query-key pairs of all calls, and for each call as much
    as 16,384 pairs on a CPU (measured) or 262,144 on a GPU (from the usual times of launches). Only
    choices whose largest call stays within ``max_scores`` pairs are taken; where none does, one
    block of one row at a time. The masks of all chunks are kept for the batch and shared by its
    layers: one number in the type of the keys for each pair.

    Args:
        visibility: what the blocks see.
        device: where attention will run.
        max_scores: pairs of one call; default :data:`MAX_SCORES`.
    """

    def __init__(
        self, visibility: Visibility, device: torch.device, max_scores: int | None = None
    ) -> None:
        """Choose the chunks; masks come with the first call, when their type is known."""
        self._visibility = visibility
        self._device = device
        call_cost = _CALL_COST.get(device.type, _CALL_COST["cuda"])
        self.chunks = choose_chunks(visibility, max_scores or MAX_SCORES, call_cost)
        self._first = visibility.first.to(device, non_blocking=True)
        self._stop = visibility.stop.to(device, non_blocking=True)
        self._masks: dict[torch.dtype, list[torch.Tensor]] = {}

    # The chunks are numbers of this batch: code compiled for them would serve no other.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(
        self, queries: torch.Tensor, context: KeyValues, blocks: KeyValues
    ) -> torch.Tensor:
        """Attend; shapes as in :class:`~lengthwise.dflash.attention.BlockAttention`."""
        dtype = context.values.dtype
        if dtype not in self._masks:
            self._masks[dtype] = [self._mask(chunk, dtype) for chunk in self.chunks]
        by_rows: dict[int, list[torch.Tensor]] = {}
        for chunk, mask in zip(self.chunks, self._masks[dtype], strict=True):
            own = self._tokens(chunk.blocks)
            # A block's own keys come first: every query then sees one of the first few.
            keys, values = (
                torch.cat((of_blocks[chunk.rows, :, own], past[chunk.rows, :, chunk.columns]), 2)
                for of_blocks, past in zip(blocks, context, strict=True)
            )
            attended = attend_with_mask(queries[chunk.rows, :, own], keys, values, mask)
            by_rows.setdefault(chunk.rows.start, []).append(attended)
        return torch.cat([torch.cat(row, dim=2) for row in by_rows.values()])

    def _tokens(self, blocks: slice) -> slice:
        size = self._visibility.block_size
        return slice(blocks.start * size, blocks.stop * size)

    def _mask(self, chunk: Chunk, dtype: torch.dtype) -> torch.Tensor:
        """What to add to the scores: 0 where seen, else -inf; (rows, 1, queries, keys)."""
        rule, size = self._visibility, self._visibility.block_size
        first, stop = (x[chunk.rows, chunk.blocks, None] for x in (self._first, self._stop))
        if rule.window is not None:
            places = torch.arange(size, device=self._device)
            first = torch.maximum(first, stop + places - rule.window + 1)
        columns = torch.arange(chunk.columns.start, chunk.columns.stop, device=self._device)
        seen = (columns >= first[..., None]) & (columns < stop[..., None])
        rows, num_blocks = seen.shape[:2]
        past = seen.expand(-1, -1, size, -1).flatten(1, 2)
        same = torch.eye(num_blocks, dtype=torch.bool, device=self._device)
        own = torch.kron(same, own_block_mask(size, rule.window, self._device))
        visible = torch.cat((own.expand(rows, -1, -1), past), dim=2)[:, None]
        keys = visible.shape[-1]
        width = -(-keys // _ALIGNMENT) * _ALIGNMENT
        mask = torch.zeros(*visible.shape[:-1], width, dtype=dtype, device=self._device)
        return mask[..., :keys].masked_fill_(~visible, -torch.inf)


def choose_chunks(visibility: Visibility, max_scores: int, call_cost: int) -> list[Chunk]:
    """Cut a batch into chunks by the rule of :class:`Chunks`; ordered by row, then block."""
    num_rows, num_blocks = visibility.first.shape
    sizes = [1 << power for power in range((num_blocks - 1).bit_length() + 1)]
    cuts = [_Cut(visibility, rows, size) for rows in sorted({1, num_rows}) for size in sizes]
    allowed = [cut for cut in cuts if cut.largest <= max_scores] or cuts[:1]
    return min(allowed, key=lambda cut: cut.num_pairs + call_cost * cut.num_calls).chunks()


class _Cut:
    """One way to cut a batch: so many rows and so many blocks make a chunk."""

    def __init__(self, visibility: Visibility, rows: int, blocks: int) -> None:
        num_rows, num_blocks = visibility.first.shape
        self._rows, self._blocks, self._num_blocks = rows, blocks, num_blocks
        first, stop = visibility.begin(0), visibility.stop
        sees_none = first >= stop
        self._low = self._per_chunk(first.masked_fill(sees_none, visibility.num_columns)).amin(-1)
        self._high = self._per_chunk(stop.masked_fill(sees_none, 0), fill=0).amax(-1)
        self._low = torch.minimum(self._low, self._high)  # nothing seen: an empty slice
        filled = torch.full((num_rows, num_blocks), visibility.block_size)
        queries = self._per_chunk(filled, fill=0).sum(-1)
        pairs = queries * (queries // rows + self._high - self._low)
        self.num_calls = pairs.numel()
        self.num_pairs = int(pairs.sum())
        self.largest = int(pairs.max())

    def _per_chunk(self, values: torch.Tensor, fill: int | None = None) -> torch.Tensor:
        """Values (R, N) as (chunks of rows, chunks of blocks, blocks of a chunk)."""
        missing = -self._num_blocks % self._blocks
        last = (
            values[:, -1:].expand(-1, missing)
            if fill is None
            else values.new_full((len(values), missing), fill)
        )
        cut = torch.cat((values, last), dim=1)
        cut = cut.view(len(values) // self._rows, self._rows, -1, self._blocks)
        return cut.transpose(1, 2).flatten(2)

    def chunks(self) -> list[Chunk]:
        """The chunks, ordered by row, then block."""
        low, high = self._low.tolist(), self._high.tolist()
        return [
            Chunk(
                rows=slice(i * self._rows, (i + 1) * self._rows),
                blocks=slice(j * self._blocks, min((j + 1) * self._blocks, self._num_blocks)),
                columns=slice(low[i][j], high[i][j]),
            )
            for i in range(len(low))
            for j in range(len(low[i]))
        ]


def attend_with_mask(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Scaled dot product attention, with fewer heads of keys than of queries where grouped.

    Keys are repeated rather than grouped by the kernel: with a mask, the GPU's fast kernels take
    equal heads only.
    """
    group = queries.shape[1] // keys.shape[1]
    if group > 1:
        keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
