"""Block attention by PyTorch's flex attention: one call, tiles that nothing sees are skipped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.layers import KeyValues
    from lengthwise.dflash.visibility import Visibility

TILE = 128
"""Queries, and keys, of a tile; flex attention's own."""


_COMPILED_KINDS = 64


class FlexMask:
    """Attention of all blocks of a batch, by one kind of layer.

    Keys are the row's columns, then all block tokens of the row. Which tiles are seen, and which
    wholly, is worked out from the ranges of columns on the CPU: no dense mask is ever made.

    Args:
        visibility: what the blocks see.
        device: where attention will run.
    """

    def __init__(self, visibility: Visibility, device: torch.device) -> None:
        """Work out the tiles."""
        from torch.nn.attention.flex_attention import BlockMask

        some, whole = seen_tiles(visibility)
        num_queries = visibility.first.shape[1] * visibility.block_size
        self.mask: BlockMask = BlockMask.from_kv_blocks(
            *_listed(some & ~whole, device),
            *_listed(whole, device),
            BLOCK_SIZE=TILE,
            mask_mod=_rule(visibility, device),
            seq_lengths=(num_queries, visibility.num_columns + num_queries),
        )

    def __call__(
        self, queries: torch.Tensor, context: KeyValues, blocks: KeyValues
    ) -> torch.Tensor:
        """Attend; shapes as in :class:`~lengthwise.dflash.attention.BlockAttention`."""
        keys, values = (torch.cat(pair, dim=2) for pair in zip(context, blocks, strict=True))
        attend = _flex_attention(queries.device.type)
        grouped = queries.shape[1] != keys.shape[1]
        attended: torch.Tensor = attend(
            queries, keys, values, block_mask=self.mask, enable_gqa=grouped
        )
        return attended


@cache
def _flex_attention(device_type: str) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    if device_type == "cpu":  # there is no compiled way back on a CPU
        return flex_attention
    # One row or several, one tile or several, full or sliding, training or not: each has code of
    # its own. Past the limit PyTorch would fall back to a dense matrix of scores.
    limit = torch._dynamo.config.recompile_limit  # noqa: SLF001  # it has no public name
    torch._dynamo.config.recompile_limit = max(limit, _COMPILED_KINDS)  # noqa: SLF001
    return torch.compile(flex_attention, dynamic=True)


def _rule(visibility: Visibility, device: torch.device) -> Callable[..., torch.Tensor]:
    """The rule of :class:`~lengthwise.dflash.attention.BlockAttention` for one query and key."""
    first = visibility.first.to(device, non_blocking=True)
    stop = visibility.stop.to(device, non_blocking=True)
    size, window = visibility.block_size, visibility.window
    # A tensor, since compiled code would be made anew for every other number.
    columns = torch.tensor(visibility.num_columns).to(device, non_blocking=True)

    def sees(
        row: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        del head
        block, place = query // size, query % size
        begin, end = first[row, block], stop[row, block]
        own = key - columns
        same = (own >= 0) & (own // size == block)
        if window is not None:
            begin = torch.maximum(begin, end + place - window + 1)
            behind = place - own % size
            same = same & (behind >= 0) & (behind < window)
        # A column of the context is before every anchor's column at most.
        return same | ((key < columns) & (key >= begin) & (key < end))

    return sees


def seen_tiles(visibility: Visibility) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tiles of queries and keys have any pair that is seen, and which have no other.

    Returns:
        Two tensors (R, tiles of queries, tiles of keys), bool, on the CPU; the first may hold
        tiles of nothing too, the second none with an unseen pair.
    """
    rows, blocks = visibility.first.shape
    size, columns = visibility.block_size, visibility.num_columns
    num_queries = blocks * size
    query_tiles, key_tiles = (-(-n // TILE) for n in (num_queries, columns + num_queries))
    # The blocks that a tile of queries touches: from the one of its first to that of its last.
    starts = torch.arange(query_tiles) * TILE
    ends = torch.clamp(starts + TILE, max=num_queries)
    members = torch.arange(blocks)
    touches = (members >= (starts // size)[:, None]) & (members <= ((ends - 1) // size)[:, None])
    touches = touches[None, :, :, None]
    left = torch.arange(key_tiles) * TILE
    right = left + TILE
    stop = visibility.stop[..., None]
    sees = (visibility.begin(0)[..., None] < right) & (stop > left)
    sees &= visibility.begin(0)[..., None] < stop
    sees_all = (visibility.begin(size - 1)[..., None] <= left) & (stop >= right)
    some = (sees[:, None] & touches).any(2)
    whole = (sees_all[:, None] | ~touches).all(2)
    own_left = columns + (starts // size) * size
    own_right = columns + ((ends - 1) // size + 1) * size
    own = (left < own_right[:, None]) & (right > own_left[:, None])
    return some | own.expand(rows, -1, -1), whole


def _listed(tiles: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Tiles as flex attention takes them: how many of each row, and their numbers first."""
    numbers = tiles.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    counts = tiles.sum(dim=-1)
    return (
        counts[:, None].to(device, torch.int32, non_blocking=True),
        numbers[:, None].to(device, torch.int32, non_blocking=True),
    )
