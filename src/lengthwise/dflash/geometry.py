"""Reading a target's sizes from its configuration, whatever the family calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.config import ROPE_TYPES
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
_THETAS = ("rope_theta", "rotary_emb_base", "rope_base")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_DEFAULT_THETA = 10_000.0
_DEFAULT_LENGTH = 32_768
_DEFAULT_EPSILON = 1e-6
_HEAD_DIM = 64

# Not the drafter's: it turns the whole head, by one axis of positions.
_LEFT_OUT = ("partial_rotary_factor", "mrope_section", "mrope_interleaved", "type")


def read_geometry(target_config: PretrainedConfig) -> dict[str, Any]:
    """Read what a drafter takes over from a target.

    A field that the configuration lacks gets a rule:

    - ``num_attention_heads`` (a target without attention): heads of width 64, or one head where
      the width does not divide by 64;
    - ``num_key_value_heads``: as many as query heads (no grouping);
    - ``head_dim``: ``hidden_size / num_attention_heads``;
    - ``intermediate_size``: ``3 * hidden_size``, the ratio of Qwen3-8B;
    - epsilon: that of the family's layer norms, else 1e-6;
    - ``rope_theta``: 10,000; ``max_position_embeddings``: 32,768.

    The rotary embedding turns whole heads, as the engines' drafters do: a target's partial
    or multi-axis rotation is left out. A type whose frequencies change with the length
    (dynamic, longrope, proportional) becomes the plain one with the same ``rope_theta``, as else
    keys of one text would depend on when they were computed. Of configurations with one rotary
    embedding a layer type, that of full attention counts.

    Args:
        target_config: the target's configuration; of a multimodal one its text part counts.

    Returns:
        Fields of :class:`~lengthwise.dflash.config.DrafterConfig`, by name.

    Raises:
        ConfigError: the target says not its width, its number of layers or its vocabulary.
    """
    config = target_config.get_text_config(decoder=True)
    hidden_size = _needed(config, "hidden_size")
    return {
        "hidden_size": hidden_size,
        **_heads(config, hidden_size),
        "intermediate_size": _intermediate_size(config, hidden_size),
        "vocab_size": _needed(config, "vocab_size"),
        "num_target_layers": _needed(config, "num_hidden_layers"),
        "rms_norm_eps": float(_first(config, _EPSILONS, _DEFAULT_EPSILON)),
        "rope_parameters": _rope(config),
        "max_position_embeddings": _first(config, _LENGTHS, _DEFAULT_LENGTH),
    }


def _first(config: PretrainedConfig, names: tuple[str, ...], default: Any) -> Any:
    """The first of ``names`` that the configuration has with a value."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    return default


def _needed(config: PretrainedConfig, name: str) -> int:
    value = getattr(config, name, None)
    if not isinstance(value, int):
        raise ConfigError(
            f"{name} must stand in the target's configuration ({type(config).__name__}) as an "
            f"integer, got {value!r}; make the DrafterConfig field by field instead"
        )
    return value


def _heads(config: PretrainedConfig, hidden_size: int) -> dict[str, int]:
    heads = getattr(config, "num_attention_heads", None)
    if heads is None:  # no attention; what the family calls a head is another thing
        width = _HEAD_DIM if hidden_size % _HEAD_DIM == 0 else hidden_size
        heads = hidden_size // width
        return {"num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": width}
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": _first(config, ("num_key_value_heads",), heads),
        "head_dim": _first(config, ("head_dim",), None) or _head_dim(hidden_size, heads),
    }


def _head_dim(hidden_size: int, heads: int) -> int:
    if hidden_size % heads:
        raise ConfigError(
            f"head_dim must be given, since hidden_size = {hidden_size} does not divide by "
            f"num_attention_heads = {heads}: pass head_dim, num_attention_heads or both"
        )
    return hidden_size // heads


def _intermediate_size(config: PretrainedConfig, hidden_size: int) -> int:
    value = _first(config, ("intermediate_size", "n_inner", "ffn_dim"), None)
    return value if isinstance(value, int) and value > 0 else 3 * hidden_size


def _rope(config: PretrainedConfig) -> dict[str, Any]:
    found = _first(config, ("rope_parameters", "rope_scaling"), {})
    if isinstance(found.get("full_attention"), Mapping):
        found = found["full_attention"]
    theta = found.get("rope_theta") or _first(config, _THETAS, _DEFAULT_THETA)
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in ROPE_TYPES or kind == "default":
        return {"rope_type": "default", "rope_theta": float(theta)}
    kept = {key: value for key, value in found.items() if key not in _LEFT_OUT}
    return {**kept, "rope_type": kind, "rope_theta": float(theta)}
