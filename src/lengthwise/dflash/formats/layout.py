"""The tensors of a drafter: what they are called and what shape they have.

Derived from the config alone, so that a file can be judged without building a model. The names are
those of the published checkpoints, which the method's own package, vLLM and SGLang read; the
speculators format stores the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lengthwise.dflash.config import DrafterConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""What a checkpoint may be stored in, by the name that its config gives."""


def dtype_name(dtype: torch.dtype) -> str:
    """``bfloat16`` for ``torch.bfloat16``, as configs write it."""
    return str(dtype).removeprefix("torch.")


def tensor_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint of this config holds, and no other."""
    width = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, len(config.target_layer_ids) * width),
        "hidden_norm.weight": (width,),
        "norm.weight": (width,),
    }
    for layer in range(config.num_hidden_layers):
        for name, shape in _layer_shapes(config).items():
            shapes[f"layers.{layer}.{name}"] = shape
    return shapes


def _layer_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    width, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    projections = {
        "q_proj": (queries, width),
        "k_proj": (keys, width),
        "v_proj": (keys, width),
        "o_proj": (width, queries),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.q_norm.weight": (config.head_dim,),
        "self_attn.k_norm.weight": (config.head_dim,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    for name, shape in projections.items():
        shapes[f"self_attn.{name}.weight"] = shape
        if config.attention_bias:
            shapes[f"self_attn.{name}.bias"] = shape[:1]
    return shapes
