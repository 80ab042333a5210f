"""The drafter: a few layers that fill a whole block at once, from the target's own states."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from lengthwise.dflash.attention import attend_to_cache
from lengthwise.dflash.cache import ContextCache
from lengthwise.dflash.layers import DrafterLayer, Rotary
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from lengthwise.dflash.attention import BlockAttention
    from lengthwise.dflash.config import DrafterConfig

INIT_STD = 0.02
"""Of the first weights, for targets of 2,500 wide and more: public recipes' number."""


def init_std(hidden_size: int) -> float:
    """Standard deviation of a drafter's first weights: ``1 / sqrt(D)``, at least 0.02.

    The two meet at D = 2,500. Narrow drafters that start from 0.02 change their states so little
    that they learn several times more slowly (measured at D = 64: ``docs/concepts/dflash.md``).
    """
    return max(INIT_STD, 1 / math.sqrt(hidden_size))


class Drafter(nn.Module):
    """A block-diffusion drafter (DFlash, arXiv 2602.06036, sections 4.1, 4.2 and A.3).

    The target's features of all tokens before a block's anchor, fused once, stand as further keys
    and values in every layer. The block, the anchor's embedding and those of the mask token, is
    filled in one forward. Embedding and head are the target's and no part of this module: its
    state dict holds the 3 + 11 * num_hidden_layers tensors of the published format.

    Args:
        config: sizes.
        seed: decides the first weights: normal, their standard deviation by :func:`init_std`;
            norms 1, biases 0. The global random state is left as it was.

    Attributes:
        config: as given.
        gradient_checkpointing: in training, keep only each layer's input and compute the layer
            again on the way back: less memory, about a third more time. Off at first.
    """

    def __init__(self, config: DrafterConfig, *, seed: int = 0) -> None:
        """Make the modules and their first weights."""
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        with torch.random.fork_rng(devices=()):  # the modules draw weights that we replace
            self.layers = nn.ModuleList(
                DrafterLayer(config, i) for i in range(config.num_hidden_layers)
            )
            self.fc = nn.Linear(config.feature_size, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary = Rotary(config)
        self._draw_weights(seed)

    @torch.no_grad()
    def _draw_weights(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        std = init_std(self.config.hidden_size)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                drawn = torch.empty(module.weight.shape, device="cpu")
                module.weight.copy_(drawn.normal_(0, std, generator=generator))
                if module.bias is not None:
                    module.bias.zero_()

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights."""
        weight: torch.Tensor = self.norm.weight
        return weight.dtype

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        weight: torch.Tensor = self.norm.weight
        return weight.device

    @property
    def _typed_layers(self) -> list[DrafterLayer]:
        return cast("list[DrafterLayer]", list(self.layers))

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Fuse the target's features (R, S, F) into context states (R, S, D)."""
        if features.shape[-1] != self.config.feature_size:
            raise ModelError(
                f"features must be {self.config.feature_size} wide ({self.config.num_taps} taps "
                f"of hidden_size {self.config.hidden_size}), got {features.shape[-1]}; take them "
                f"from target layers {list(self.config.target_layer_ids)}"
            )
        if not torch.is_autocast_enabled(features.device.type):  # autocast casts by itself
            features = features.to(self.dtype)
        fused: torch.Tensor = self.hidden_norm(self.fc(features))
        return fused

    def forward(
        self, embeddings: torch.Tensor, features: torch.Tensor, attention: BlockAttention
    ) -> torch.Tensor:
        """Run all blocks of a batch at once, for training.

        Args:
            embeddings: of the blocks' tokens by the target's table, shape (R, N * B, D).
            features: the target's, shape (R, S, F).
            attention: who sees what; made from the same batch and anchors.

        Returns:
            States after the final norm, shape (R, N * B, D); the target's head takes them as
            they are. Carried in the weights' dtype, whatever the embeddings have.
        """
        states = embeddings.to(self.dtype)
        context = self.fuse(features)
        turns = self.rotary(attention.block_positions, self.dtype)
        context_turns = self.rotary(attention.context_positions, self.dtype)
        for layer in self._typed_layers:
            attend = partial(attention, sliding=layer.is_sliding)
            if self.gradient_checkpointing and self.training:
                states = checkpoint(
                    layer, states, context, turns, context_turns, attend, use_reentrant=False
                )
            else:
                states = layer(states, context, turns, context_turns, attend)
        return self.norm(states)  # type: ignore[no-any-return]

    def new_cache(self) -> ContextCache:
        """An empty cache for one text."""
        return ContextCache(self.config.num_hidden_layers)

    @torch.no_grad()
    def append_context(self, features: torch.Tensor, cache: ContextCache) -> None:
        """Add the next tokens' features to a text's context.

        Args:
            features: of the T tokens that follow what is in the cache, shape (1, T, F).
            cache: the text's; its length grows by T.
        """
        context = self.fuse(features)
        turns = self.rotary(self._positions(cache.length, features.shape[1]), self.dtype)
        cache.extend([layer.self_attn.keys_values(context, turns) for layer in self._typed_layers])

    @torch.no_grad()
    def draft(self, embeddings: torch.Tensor, cache: ContextCache) -> torch.Tensor:
        """Fill one block that follows the context; the cache stays as it is.

        Args:
            embeddings: of the anchor's token and of mask tokens, shape (1, B, D). Fewer than
                ``block_size`` are allowed, where less is to be generated.
            cache: the context: all tokens before the anchor.

        Returns:
            States after the final norm, shape (1, B, D); state k belongs to the token k places
            after the anchor.
        """
        if cache.length == 0:  # a text whose first token is the anchor
            nothing = embeddings.new_zeros(len(embeddings), 0, self.config.feature_size)
            self.append_context(nothing, cache)
        states = embeddings.to(self.dtype)
        turns = self.rotary(self._positions(cache.length, embeddings.shape[1]), self.dtype)
        for index, layer in enumerate(self._typed_layers):
            window = self.config.sliding_window if layer.is_sliding else None
            attend = partial(attend_to_cache, window=window)
            states = layer(states, cache.layer(index), turns, None, attend)
        return self.norm(states)  # type: ignore[no-any-return]

    def _positions(self, start: int, count: int) -> torch.Tensor:
        return torch.arange(start, start + count, device=self.device)[None]
