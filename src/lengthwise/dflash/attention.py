"""Attention of a batch's blocks: to their document before the anchor, and to themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import torch

from lengthwise.dflash.chunks import Chunks, attend_with_mask
from lengthwise.dflash.flex import FlexMask
from lengthwise.dflash.visibility import Visibility, own_block_mask
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.dflash.anchors import Anchors
    from lengthwise.dflash.batch import DraftBatch
    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.layers import KeyValues

Backend = Literal["auto", "sdpa", "flex"]

FLEX_FROM_QUERIES = 2048
"""From this many queries a batch on, ``"auto"`` takes flex attention on a GPU."""

_FLEX_HEAD_DIMS = (16, 32, 64, 128, 256)


class BlockAttention:
    """Who sees what in one batch; made once, called by every layer.

    A query of the block with anchor column ``a`` sees the context columns of its own document
    strictly before ``a``, and its own block in both directions. In a sliding layer it sees of these
    only positions less than ``sliding_window`` before its own, and of its block none after it.
    Nothing else is seen: no later column, no other document, no padding, no other block. A block
    that is not kept sees itself alone, so its outputs are finite and touch nothing.

    Backends:

    - ``"sdpa"``: PyTorch's scaled dot product, in chunks of blocks; see
      :class:`~lengthwise.dflash.chunks.Chunks`. Everywhere.
    - ``"flex"``: flex attention with a block mask; compiled on a GPU, evaluated plainly on a
      CPU, where it serves as a check and is slow.
    - ``"auto"``: flex on CUDA where the batch has :data:`FLEX_FROM_QUERIES` queries or more and
      ``head_dim`` is a power of two from 16 to 256; else sdpa.

    All index arithmetic is on the CPU. Give batch and anchors on the CPU and ``device`` apart, and
    nothing waits for the GPU; ids that are on a GPU are copied back first.

    Args:
        batch: the batch, on any device. Documents are contiguous in their rows.
        anchors: its blocks, on any device.
        config: the drafter's.
        backend: as above.
        device: where attention will run; default: where ``batch.features`` are.
        max_scores: for ``"sdpa"``, as in :class:`~lengthwise.dflash.chunks.Chunks`.

    Attributes:
        backend: ``"sdpa"`` or ``"flex"``.
        context_positions: position of each context column in its document, shape (R, S).
        block_positions: position of each block token, shape (R, N * B).

    Raises:
        ConfigError: an unknown backend, or anchors of other rows or outside of them.
    """

    def __init__(
        self,
        batch: DraftBatch,
        anchors: Anchors,
        config: DrafterConfig,
        backend: Backend = "auto",
        *,
        device: torch.device | str | None = None,
        max_scores: int | None = None,
    ) -> None:
        """Work out positions and visibility."""
        if backend not in get_args(Backend):
            allowed = ", ".join(get_args(Backend))
            raise ConfigError(f"backend must be one of {allowed}, got {backend!r}")
        device = torch.device(batch.features.device if device is None else device)
        index, keep = anchors.index.cpu(), anchors.keep.cpu()
        position_ids = batch.position_ids.cpu()
        full = Visibility.of(batch.document_ids.cpu(), index, keep, config.block_size)
        steps = torch.arange(config.block_size)
        block_positions = (position_ids.gather(1, index)[..., None] + steps).flatten(1)
        self.context_positions = batch.position_ids.to(device, non_blocking=True)
        self.block_positions = block_positions.to(device, non_blocking=True)
        self.backend = _resolve(backend, config, device, block_positions.numel())
        kinds = {kind == "sliding_attention" for kind in config.layer_types}
        rules = dict.fromkeys(kinds, full)
        if True in rules:
            rules[True] = replace(full, window=config.sliding_window)
        self._masks: dict[bool, Chunks | FlexMask] = {
            sliding: FlexMask(rule, device)
            if self.backend == "flex"
            else Chunks(rule, device, max_scores)
            for sliding, rule in rules.items()
        }

    def __call__(
        self, queries: torch.Tensor, context: KeyValues, blocks: KeyValues, *, sliding: bool
    ) -> torch.Tensor:
        """Attend.

        Args:
            queries: of all block tokens, shape (R, H, N * B, head_dim).
            context: keys and values of all columns, each (R, key heads, S, head_dim).
            blocks: of all block tokens, each (R, key heads, N * B, head_dim).
            sliding: whether the layer is a sliding one.

        Returns:
            Shape (R, H, N * B, head_dim).
        """
        return self._masks[sliding](queries, context, blocks)


def attend_to_cache(
    queries: torch.Tensor, context: KeyValues, block: KeyValues, *, window: int | None
) -> torch.Tensor:
    """Attention of one block to all of a cache and to itself, by the rule of training.

    Args:
        queries: shape (1, H, B, head_dim).
        context: of the tokens before the block, each (1, key heads, T, head_dim).
        block: each (1, key heads, B, head_dim).
        window: that of a sliding layer, else None.

    Returns:
        Shape (1, H, B, head_dim).
    """
    past, size = context.keys.shape[2], queries.shape[2]
    mask = None
    if window is not None:
        begin = max(0, past - window + 1)  # no query sees further back
        context = type(context)(*(x[:, :, begin:] for x in context))
        places = torch.arange(size, device=queries.device)
        before = torch.arange(begin - past, 0, device=queries.device)
        seen = places[:, None] - before < window
        own = own_block_mask(size, window, queries.device)
        mask = torch.cat((seen, own), dim=1)
    keys, values = (torch.cat(pair, dim=2) for pair in zip(context, block, strict=True))
    return attend_with_mask(queries, keys, values, mask)


def _resolve(
    backend: Backend, config: DrafterConfig, device: torch.device, num_queries: int
) -> Literal["sdpa", "flex"]:
    if backend != "auto":
        return backend
    pays = num_queries >= FLEX_FROM_QUERIES and config.head_dim in _FLEX_HEAD_DIMS
    return "flex" if device.type == "cuda" and pays else "sdpa"
