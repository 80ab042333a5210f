"""Tiny random causal language models, made on the spot: one for each kind that targets come in.

A seed gives the same weights every time, and the global random state is left as it was. Weights
are drawn wide (0.2 instead of 0.02), so that states differ from token to token and the greedy
choice of the head is no tie. Every model is in fp32, on the CPU and in evaluation mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PretrainedConfig, PreTrainedModel

    from lengthwise.dflash.config import DrafterConfig

VOCAB = 96
HIDDEN = 32
MASK_TOKEN = VOCAB - 1  # prompts of tests use ids below EOS_TOKEN
EOS_TOKEN = VOCAB - 2

_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": EOS_TOKEN,
}


def build(model_class: type, config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """The model of ``config`` with weights from ``seed``; the global random state is not moved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    return model.eval()


def _settings(overrides: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    return {**_SIZES, **defaults, **overrides}


def tiny_llama(
    *, tied: bool = False, num_layers: int = 4, seed: int = 0, **overrides: Any
) -> PreTrainedModel:
    """Llama: grouped-query attention, no biases."""
    settings = _settings(overrides, num_hidden_layers=num_layers, tie_word_embeddings=tied)
    config = transformers.LlamaConfig(**settings)
    return build(transformers.LlamaForCausalLM, config, seed)


def tiny_qwen2(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Qwen2: biases on queries, keys and values; tied head."""
    settings = _settings(overrides, num_hidden_layers=num_layers, tie_word_embeddings=True)
    return build(transformers.Qwen2ForCausalLM, transformers.Qwen2Config(**settings), seed)


def tiny_qwen3(
    *, tied: bool = False, num_layers: int = 6, seed: int = 0, **overrides: Any
) -> PreTrainedModel:
    """Qwen3: norms on queries and keys, a head width apart from hidden_size / heads."""
    settings = _settings(
        overrides, num_hidden_layers=num_layers, tie_word_embeddings=tied, head_dim=16
    )
    return build(transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**settings), seed)


def tiny_smollm(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """SmolLM2: a Llama with tied head and as many key heads as its real sizes give (3 of 9)."""
    sizes = {"hidden_size": 36, "num_attention_heads": 9, "num_key_value_heads": 3}
    return tiny_llama(tied=True, num_layers=num_layers, seed=seed, **{**sizes, **overrides})


def tiny_smollm3(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """SmolLM3: some layers without rotary positions; tied head."""
    settings = _settings(
        overrides,
        num_hidden_layers=num_layers,
        no_rope_layer_interval=2,
        tie_word_embeddings=True,
    )
    return build(transformers.SmolLM3ForCausalLM, transformers.SmolLM3Config(**settings), seed)


def tiny_neox(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """GPT-NeoX: LayerNorm, parallel residual, ``embed_in`` and ``embed_out``."""
    settings = _settings(overrides, num_hidden_layers=num_layers, rotary_pct=0.5)
    settings.pop("num_key_value_heads")
    return build(transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig(**settings), seed)


def tiny_gpt2(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """GPT-2: learned positions, ``transformer.h``, tied head, other names in its config."""
    settings = {
        "vocab_size": VOCAB,
        "n_embd": HIDDEN,
        "n_head": 4,
        "n_layer": num_layers,
        "n_positions": 512,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": EOS_TOKEN,
    }
    config = transformers.GPT2Config(**{**settings, **overrides})
    return build(transformers.GPT2LMHeadModel, config, seed)


def tiny_gemma2(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Gemma 2: scaled embeddings, sliding and full layers in turn, capped logits, tied head."""
    settings = _settings(
        overrides,
        num_hidden_layers=num_layers,
        head_dim=8,
        sliding_window=8,
        query_pre_attn_scalar=8,
    )
    return build(transformers.Gemma2ForCausalLM, transformers.Gemma2Config(**settings), seed)


def tiny_gemma3(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Gemma 3, text only: the embedding module itself scales by sqrt(hidden_size)."""
    settings = _settings(
        overrides,
        num_hidden_layers=num_layers,
        head_dim=8,
        sliding_window=8,
        query_pre_attn_scalar=8,
    )
    config = transformers.Gemma3TextConfig(**settings)
    return build(transformers.Gemma3ForCausalLM, config, seed)


_LINEAR = {
    "head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}


def tiny_qwen3_next(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Qwen3-Next: three gated-delta layers, then one of full attention; mixture of experts."""
    experts = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    }
    settings = _settings(overrides, num_hidden_layers=num_layers, **_LINEAR, **experts)
    config = transformers.Qwen3NextConfig(**settings)
    return build(transformers.Qwen3NextForCausalLM, config, seed)


def tiny_qwen35(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Qwen3.5, text only: gated-delta and full layers, dense feed-forward."""
    from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    settings = _settings(overrides, num_hidden_layers=num_layers, **_LINEAR)
    return build(Qwen3_5ForCausalLM, Qwen3_5TextConfig(**settings), seed)


def tiny_qwen35_vision(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Qwen3.5 as published, with a vision tower beside the language model."""
    from transformers.models.qwen3_5 import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = _settings(overrides, num_hidden_layers=num_layers, **_LINEAR)
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 16,
    }
    config = Qwen3_5Config(text_config=text, vision_config=vision)
    return build(Qwen3_5ForConditionalGeneration, config, seed)


def tiny_hybrid(**settings: Any) -> PreTrainedModel:
    """The hybrid to use when one is enough: gated-delta layers and full attention (Qwen3-Next)."""
    return tiny_qwen3_next(**settings)


def tiny_mamba2(*, num_layers: int = 4, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Mamba 2: nothing but state-space layers."""
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": num_layers,
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 2,
        "chunk_size": 8,
        "initializer_range": 0.2,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": EOS_TOKEN,
    }
    config = transformers.Mamba2Config(**{**settings, **overrides})
    return build(transformers.Mamba2ForCausalLM, config, seed)


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": tiny_llama,
    "llama-tied": lambda: tiny_llama(tied=True),
    "qwen2": tiny_qwen2,
    "qwen3": tiny_qwen3,
    "smollm2": tiny_smollm,
    "smollm3": tiny_smollm3,
    "gpt-neox": tiny_neox,
    "gpt2": tiny_gpt2,
    "gemma2": tiny_gemma2,
    "gemma3": tiny_gemma3,
    "qwen3-next": tiny_qwen3_next,
    "qwen3.5": tiny_qwen35,
    "qwen3.5-vision": tiny_qwen35_vision,
    "mamba2": tiny_mamba2,
}

RECURRENT = {"qwen3-next", "qwen3.5", "qwen3.5-vision", "mamba2"}


def tiny_drafter_config(model: PreTrainedModel, **overrides: Any) -> DrafterConfig:
    """A drafter's settings that fit ``model``: two layers, blocks of four, mask id MASK_TOKEN."""
    from lengthwise.dflash.config import DrafterConfig

    settings = {"mask_token_id": MASK_TOKEN, "num_hidden_layers": 2, "block_size": 4}
    if not overrides.keys() & {"num_taps", "target_layer_ids"}:  # too few layers for the rule
        settings["target_layer_ids"] = (1, 2)
    return DrafterConfig.for_target(model.config.get_text_config(), **{**settings, **overrides})
