"""The drafter's layers: Qwen3's, but with keys and values from two sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3MLP,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
)

if TYPE_CHECKING:
    from lengthwise.dflash.config import DrafterConfig


class KeyValues(NamedTuple):
    """Keys, already turned by their positions, and values; each (R, key heads, T, head_dim)."""

    keys: torch.Tensor
    values: torch.Tensor


class Turns(NamedTuple):
    """Cosines and sines of the rotary embedding at some positions; each (R, 1, T, head_dim / 2)."""

    cos: torch.Tensor
    sin: torch.Tensor


Attend = Callable[[torch.Tensor, KeyValues, KeyValues], torch.Tensor]
"""(queries (R, H, Q, head_dim), of the context, of the blocks) -> (R, H, Q, head_dim)."""


class Rotary(nn.Module):
    """Rotary positions, with frequencies that stay in fp32 whatever the drafter is cast to."""

    def __init__(self, config: DrafterConfig) -> None:
        """Take the frequencies of ``config.rope_parameters`` as Qwen3 computes them."""
        super().__init__()
        source = Qwen3RotaryEmbedding(_qwen3_config(config))
        self.scale = float(source.attention_scaling)
        self.inverse_frequencies: torch.Tensor
        self.register_buffer("inverse_frequencies", source.inv_freq.float(), persistent=False)

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Turns:
        """Turns of ``positions``, shape (R, T)."""
        angles = positions[:, None, :, None].float() * self.inverse_frequencies
        return Turns((angles.cos() * self.scale).to(dtype), (angles.sin() * self.scale).to(dtype))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Rotary:
        """Follow the drafter to a device, but to no other dtype: bf16 would move far positions."""
        exact = self.inverse_frequencies
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = self.inverse_frequencies.device
        if not exact.is_meta:
            self.inverse_frequencies = exact.to(device)
        return self


def _qwen3_config(config: DrafterConfig) -> Any:
    rope = dict(config.rope_parameters)
    positions = {  # named so, they are understood by transformers 4 and 5
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": None if rope["rope_type"] == "default" else rope,
    }
    return Qwen3Config(
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        **positions,
    )


def turn(states: torch.Tensor, turns: Turns) -> torch.Tensor:
    """Turn states (R, heads, T, head_dim) by their positions; halves are paired, as in Llama."""
    first, second = states.chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class DrafterAttention(nn.Module):
    """Queries from the blocks alone; keys and values from context and blocks, by one projection."""

    def __init__(self, config: DrafterConfig) -> None:
        """Make the four projections and the norms of queries and keys."""
        super().__init__()
        self.head_dim = config.head_dim
        width, bias = config.hidden_size, config.attention_bias
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, queries, bias=bias)
        self.k_proj = nn.Linear(width, keys, bias=bias)
        self.v_proj = nn.Linear(width, keys, bias=bias)
        self.o_proj = nn.Linear(queries, width, bias=bias)
        self.q_norm = Qwen3RMSNorm(config.head_dim, eps=config.rms_norm_eps)
        self.k_norm = Qwen3RMSNorm(config.head_dim, eps=config.rms_norm_eps)

    def queries(self, states: torch.Tensor, turns: Turns) -> torch.Tensor:
        """Queries (R, H, T, head_dim) of states (R, T, D)."""
        projected = self.q_proj(states)
        heads = self.q_norm(self._heads(projected)).transpose(1, 2)
        return turn(heads, turns).to(projected.dtype)

    def keys_values(self, states: torch.Tensor, turns: Turns) -> KeyValues:
        """Keys and values of states (R, T, D)."""
        values = self._heads(self.v_proj(states)).transpose(1, 2)
        keys = self.k_norm(self._heads(self.k_proj(states))).transpose(1, 2)
        # Under autocast the norm gives fp32; attention wants one type.
        return KeyValues(turn(keys, turns).to(values.dtype), values)

    def output(self, attended: torch.Tensor) -> torch.Tensor:
        """Bring heads (R, H, T, head_dim) back to the width D: (R, T, D)."""
        projected: torch.Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return projected

    def _heads(self, states: torch.Tensor) -> torch.Tensor:
        heads = states.shape[-1] // self.head_dim
        return states.view(*states.shape[:-1], heads, self.head_dim)


class DrafterLayer(nn.Module):
    """One pre-norm decoder layer; only block states pass through it, the context stays as it is."""

    def __init__(self, config: DrafterConfig, index: int) -> None:
        """Make layer ``index``."""
        super().__init__()
        self.is_sliding = config.layer_types[index] == "sliding_attention"
        self.self_attn = DrafterAttention(config)
        self.mlp = Qwen3MLP(config)  # type: ignore[no-untyped-call]
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        states: torch.Tensor,
        context: torch.Tensor | KeyValues,
        turns: Turns,
        context_turns: Turns | None,
        attend: Attend,
    ) -> torch.Tensor:
        """Run the layer.

        Args:
            states: block states, shape (R, Q, D).
            context: fused features (R, S, D), taken as they are (no input norm), or their keys
                and values from a cache.
            turns: of the blocks' positions.
            context_turns: of the context's; None with a cache.
            attend: attention over context and blocks.

        Returns:
            New block states, shape (R, Q, D).
        """
        attention = self.self_attn
        if not isinstance(context, KeyValues):
            assert context_turns is not None
            context = attention.keys_values(context, context_turns)
        normed = self.input_layernorm(states)
        attended = attend(
            attention.queries(normed, turns), context, attention.keys_values(normed, turns)
        )
        states = states + attention.output(attended)
        fed: torch.Tensor = states + self.mlp(self.post_attention_layernorm(states))
        return fed
