"""A drafter's configuration: the paper's taps, refusals that say why, and fitting any target."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
import transformers
from dflash.model import build_target_layer_ids

from lengthwise.dflash.config import DrafterConfig, choose_taps
from lengthwise.errors import ConfigError
from support import dflash_models

FIELDS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": 96,
    "block_size": 4,
    "mask_token_id": 95,
    "target_layer_ids": (1, 3),
    "num_target_layers": 6,
}


@pytest.mark.parametrize(
    ("layers", "taps", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),  # Qwen3-4B and 8B, in the published checkpoints
        (64, 5, (1, 16, 31, 46, 61)),
        (36, 1, (18,)),
        (1, 1, (0,)),
        (5, 2, (1, 2)),
        (28, 3, (1, 13, 25)),
    ],
)
def test_taps_are_those_of_the_paper(layers: int, taps: int, expected: tuple[int, ...]) -> None:
    assert choose_taps(layers, taps) == expected


def test_taps_are_those_of_the_official_package_wherever_it_has_distinct_ones() -> None:
    """Its rule is the published one; where it names a layer twice, or none below 0, we refuse."""
    refused = 0
    for layers in range(1, 101):
        for taps in range(1, 13):
            official = build_target_layer_ids(layers, taps)
            usable = sorted(set(official)) == official and official[0] >= 0
            if usable:
                assert choose_taps(layers, taps) == tuple(official), (layers, taps)
            else:
                refused += 1
                with pytest.raises(ConfigError, match="num_taps"):
                    choose_taps(layers, taps)
    assert refused > 50


@pytest.mark.parametrize(
    ("layers", "taps", "way_out"),
    [
        (4, 2, "taps need 5 target layers or more.*has 4. Take num_taps = 1, or name"),
        (6, 5, "taps need 8 target layers or more.*has 6. Take num_taps = 3, or name"),
        (2, 2, "has 2. Take num_taps = 1, or name the layers in target_layer_ids"),
    ],
)
def test_a_target_with_too_few_layers_gets_a_way_out(layers: int, taps: int, way_out: str) -> None:
    """The rule spreads over layers 1 to L - 3, so L - 3 of them are the most."""
    with pytest.raises(ConfigError, match=way_out):
        choose_taps(layers, taps)
    most = max(1, layers - 3)
    assert len(choose_taps(layers, most)) == most


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 0}, "hidden_size must be from 1 to .*, got 0"),
        ({"hidden_size": 32.0}, "hidden_size must be an integer, got 32.0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be from 1 to .*, got 0"),
        ({"num_attention_heads": -1}, "num_attention_heads must be from 1 to .*, got -1"),
        (
            {"num_key_value_heads": 3},
            "num_key_value_heads must divide num_attention_heads = 4, got 3",
        ),
        (
            {"num_key_value_heads": 8},
            "num_key_value_heads must divide num_attention_heads = 4, got 8",
        ),
        ({"head_dim": 1}, "head_dim must be from 2 to .*, got 1"),
        ({"head_dim": 9}, "head_dim must be even, since positions turn pairs, got 9"),
        ({"intermediate_size": 0}, "intermediate_size must be from 1 to .*, got 0"),
        ({"vocab_size": 1}, "vocab_size must be from 2 to .*, got 1"),
        ({"block_size": 1}, "block_size must be from 2 to .*, got 1"),
        ({"block_size": True}, "block_size must be an integer, got True"),
        ({"mask_token_id": -1}, "mask_token_id must be from 0 to 95, got -1"),
        ({"mask_token_id": 96}, "mask_token_id must be from 0 to 95, got 96"),
        (
            {"target_layer_ids": ()},
            "target_layer_ids must name 1 to 6 layers of the target, got none",
        ),
        ({"target_layer_ids": (1, 6)}, "each of target_layer_ids must be from 0 to 5, got 6"),
        ({"target_layer_ids": (-1, 2)}, "each of target_layer_ids must be from 0 to 5, got -1"),
        ({"target_layer_ids": (3, 1)}, r"must rise, each layer once, got \[3, 1\]; take \[1, 3\]"),
        ({"target_layer_ids": (1, 1)}, r"must rise, each layer once, got \[1, 1\]; take \[1\]"),
        ({"num_target_layers": 0}, "num_target_layers must be from 1 to .*, got 0"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps must be over 0 and under 1, got 0.0"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps must be over 0 and under 1, got nan"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta must be a number over 0, got 0"),
        ({"rope_parameters": {}}, "rope_theta must be a number over 0, got None"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rope_type must be one of default, linear, yarn, llama3, got 'dynamic'",
        ),
        ({"max_position_embeddings": 0}, "max_position_embeddings must be from 1 to .*, got 0"),
        ({"attention_bias": 1}, "attention_bias must be True or False, got 1"),
        ({"hidden_act": "gelu"}, "hidden_act must be \"silu\", got 'gelu'"),
        (
            {"layer_types": ("full_attention",)},
            "one entry for each of the num_hidden_layers = 2 .*, got 1",
        ),
        (
            {"layer_types": ("full_attention", "linear")},
            "full_attention or sliding_attention, got 'linear'",
        ),
        (
            {"layer_types": ("full_attention", "sliding_attention")},
            "sliding_window must be an integer from 1 where .* is sliding_attention, got None",
        ),
        ({"sliding_window": 0}, "sliding_window must be from 1 to .*, got 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(change: dict[str, Any], message: str) -> None:
    """Each message has the field, the value and what is allowed."""
    with pytest.raises(ConfigError, match=message):
        DrafterConfig(**{**FIELDS, **change})


def test_what_is_not_said_has_a_default_and_lists_become_tuples() -> None:
    config = DrafterConfig(**{**FIELDS, "target_layer_ids": [1, 3]})
    assert config.target_layer_ids == (1, 3)
    assert config.layer_types == ("full_attention", "full_attention")
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10_000.0}
    assert (config.num_taps, config.feature_size) == (2, 64)
    assert hash(config) == hash(dataclasses.replace(config))


def test_the_last_layer_may_be_tapped_by_name() -> None:
    """A hook sees its raw output, so unlike in HF's hidden_states no norm has touched it."""
    config = DrafterConfig(**{**FIELDS, "target_layer_ids": (0, 5)})
    assert config.target_layer_ids == (0, 5)


EXPECTED = {
    # query heads, key heads, head width, feed-forward width, epsilon
    dflash_models.tiny_llama: (4, 2, 8, 48, 1e-6),
    dflash_models.tiny_qwen2: (4, 2, 8, 48, 1e-6),
    dflash_models.tiny_qwen3: (4, 2, 16, 48, 1e-6),
    dflash_models.tiny_smollm: (9, 3, 4, 48, 1e-6),
    dflash_models.tiny_neox: (4, 4, 8, 48, 1e-5),  # has no key heads: as many as query heads
    dflash_models.tiny_gpt2: (4, 4, 8, 96, 1e-5),  # n_inner is None: 3 * hidden_size
    dflash_models.tiny_gemma3: (4, 2, 8, 48, 1e-6),
    dflash_models.tiny_qwen35_vision: (4, 2, 16, 48, 1e-6),  # its text part
    dflash_models.tiny_mamba2: (1, 1, 32, 96, 1e-5),  # no attention: one head of the whole width
}


@pytest.mark.parametrize("make", EXPECTED, ids=lambda make: make.__name__)
def test_a_drafter_fits_a_target_of_any_family(make: Any) -> None:
    """The expected sizes are those the tiny models are made with, or the rule named beside."""
    target = make()
    config = DrafterConfig.for_target(
        target.config, mask_token_id=95, num_hidden_layers=2, target_layer_ids=(0, 2)
    )
    found = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.intermediate_size,
        config.rms_norm_eps,
    )
    assert found == EXPECTED[make]
    text = target.config.get_text_config()
    assert config.hidden_size == text.hidden_size
    assert config.vocab_size == text.vocab_size
    assert config.num_target_layers == text.num_hidden_layers


def tiny(**fields: Any) -> transformers.LlamaConfig:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 8, "vocab_size": 96}
    return transformers.LlamaConfig(**{**sizes, **fields})


def test_rotary_parameters_are_the_targets() -> None:
    """Llama 3.1's own scaling, kept whole."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    target = tiny(rope_theta=500_000.0, rope_scaling=scaling, max_position_embeddings=131_072)
    config = DrafterConfig.for_target(target, mask_token_id=1, num_hidden_layers=2)
    assert config.rope_parameters == {**scaling, "rope_theta": 500_000.0}
    assert config.max_position_embeddings == 131_072


@pytest.mark.parametrize(
    ("target", "theta"),
    [
        (dflash_models.tiny_neox, 10_000.0),  # turns a quarter of each head; the drafter all
        (dflash_models.tiny_gemma3, 1_000_000.0),  # one theta a layer type: full attention's
        (dflash_models.tiny_gpt2, 10_000.0),  # learned positions: the usual theta
    ],
)
def test_other_rotations_become_the_plain_one_with_the_same_theta(
    target: Any, theta: float
) -> None:
    config = DrafterConfig.for_target(target().config, mask_token_id=1, target_layer_ids=(1,))
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": theta}


def test_frequencies_that_change_with_the_length_become_plain() -> None:
    target = tiny(rope_theta=7e5, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    config = DrafterConfig.for_target(target, mask_token_id=1, num_hidden_layers=2)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 7e5}


def test_the_mask_token_may_lie_in_rows_that_the_configuration_does_not_count() -> None:
    """Embeddings are often padded; an unused row past vocab_size is a fine mask token."""
    with pytest.raises(ConfigError, match="mask_token_id must be from 0 to 95, got 100"):
        DrafterConfig.for_target(tiny(), mask_token_id=100, num_hidden_layers=2)
    config = DrafterConfig.for_target(
        tiny(), mask_token_id=100, num_hidden_layers=2, vocab_size=128
    )
    assert (config.mask_token_id, config.vocab_size) == (100, 128)


def test_taps_default_to_the_number_of_drafter_layers() -> None:
    """As the paper has it; 36 layers and 5 taps are its example."""
    config = DrafterConfig.for_target(tiny(num_hidden_layers=36), mask_token_id=1)
    assert config.target_layer_ids == (1, 9, 17, 25, 33)
    fewer = DrafterConfig.for_target(tiny(num_hidden_layers=36), mask_token_id=1, num_taps=3)
    assert (fewer.num_hidden_layers, fewer.num_taps) == (5, 3)


def test_a_window_makes_all_layers_but_the_last_slide() -> None:
    config = DrafterConfig.for_target(
        tiny(), mask_token_id=1, num_hidden_layers=3, sliding_window=64
    )
    assert config.layer_types == ("sliding_attention", "sliding_attention", "full_attention")
    assert config.sliding_window == 64


def test_any_field_can_be_given_beside_the_target() -> None:
    config = DrafterConfig.for_target(
        tiny(), mask_token_id=1, num_hidden_layers=2, intermediate_size=80, head_dim=64
    )
    assert (config.intermediate_size, config.head_dim) == (80, 64)
    with pytest.raises(ConfigError, match="no field of DrafterConfig: heads; it has hidden_size"):
        DrafterConfig.for_target(tiny(), mask_token_id=1, num_hidden_layers=2, heads=3)


def test_two_ways_of_naming_taps_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_taps or target_layer_ids, not both"):
        DrafterConfig.for_target(tiny(), mask_token_id=1, num_taps=2, target_layer_ids=(1, 2))


def test_a_target_whose_heads_do_not_divide_its_width_asks_for_a_head_width() -> None:
    target = transformers.PretrainedConfig(
        hidden_size=30, num_attention_heads=4, num_hidden_layers=8, vocab_size=96
    )
    with pytest.raises(
        ConfigError, match=re.escape("head_dim must be given, since hidden_size = 30")
    ):
        DrafterConfig.for_target(target, mask_token_id=1, num_hidden_layers=2)


def test_a_configuration_without_a_width_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="hidden_size must stand in the target's configuration"):
        DrafterConfig.for_target(transformers.PretrainedConfig(), mask_token_id=1)
