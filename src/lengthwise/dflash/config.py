"""What a drafter is made of: sizes, taps, positions. One frozen value, valid or not made at all."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transformers import PretrainedConfig

LayerType = Literal["full_attention", "sliding_attention"]
LAYER_TYPES: tuple[str, ...] = get_args(LayerType)

ROPE_TYPES = ("default", "linear", "yarn", "llama3")
"""Rotary embeddings whose frequencies do not change with the sequence's length."""

_MAX_TAPS = 1024
_FIRST_TAP, _TAPS_FROM_END = 1, 3  # the second layer, the third from the end


def choose_taps(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """Choose the target layers whose outputs the drafter sees, as the DFlash paper does.

    ``num_taps`` layers, evenly spread from the second layer to the third from the end; one tap
    alone is the middle layer. Source: DFlash (arXiv 2602.06036), section 4.1 and its code.

    Args:
        num_target_layers: decoder layers of the target.
        num_taps: how many of them to tap.

    Returns:
        Indices of decoder layers from 0, ascending; index ``i`` stands for the OUTPUT of layer
        ``i``. The rule never takes the last layer; who names the taps may, as hooks see
        the raw output there, before the target's final norm.

    Raises:
        ConfigError: there are not that many layers to choose from.
    """
    layers = require_int("num_target_layers", num_target_layers, least=1)
    taps = require_int("num_taps", num_taps, least=1, most=_MAX_TAPS)
    if taps == 1:
        return (layers // 2,)
    last = layers - _TAPS_FROM_END
    if taps > last:
        raise ConfigError(
            f"num_taps = {taps} taps need {taps + _TAPS_FROM_END} target layers or more, as they "
            f"spread from the second to the third from the end; this target has {layers}. "
            f"Take num_taps = {max(1, last)}, or name the layers in target_layer_ids (each from 0 "
            f"to {layers - 1})"
        )
    return tuple(
        round(_FIRST_TAP + i * (last - _FIRST_TAP) / (taps - 1))  # rounds halves to even
        for i in range(taps)
    )


@dataclass(frozen=True, kw_only=True)
class DrafterConfig:
    """Every size of a drafter; the weights are in :class:`~lengthwise.dflash.drafter.Drafter`.

    Args:
        hidden_size: width of the drafter's states; equal to the target's, since the drafter uses
            the target's embedding and head.
        num_hidden_layers: decoder layers of the drafter.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads; divides ``num_attention_heads``.
        head_dim: width of a head; even.
        intermediate_size: inner width of the feed-forward part.
        vocab_size: rows of the target's embedding.
        block_size: tokens of a block: the anchor and ``block_size - 1`` drafted ones.
        mask_token_id: the token that stands for "to be drafted"; a row of the target's embedding.
        target_layer_ids: the taps: indices from 0 of target layers whose outputs the drafter sees,
            ascending.
        num_target_layers: decoder layers of the target.
        rms_norm_eps: epsilon of the norms.
        rope_parameters: rotary embedding, as transformers 5 writes it: ``rope_type`` (one of
            :data:`ROPE_TYPES`; default ``"default"``), ``rope_theta`` and what the type needs.
        max_position_embeddings: longest sequence that the target was made for.
        attention_bias: biases on the four projections of attention.
        hidden_act: ``"silu"``; serving engines accept no other.
        layer_types: of each layer, ``"full_attention"`` (all of the context, block in both
            directions) or ``"sliding_attention"`` (the last ``sliding_window`` positions, block
            causal). Default: all full.
        sliding_window: positions that a sliding layer's query sees, itself included.

    Raises:
        ConfigError: a value out of its range; the message names field, value and range.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    rms_norm_eps: float = 1e-6
    rope_parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"rope_type": "default", "rope_theta": 10_000.0}, hash=False
    )
    max_position_embeddings: int = 32_768
    attention_bias: bool = False
    hidden_act: str = "silu"
    layer_types: tuple[LayerType, ...] = ()
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        """Check every field, and bring each to its own type."""
        for name, least in _SMALLEST.items():
            self._set(name, require_int(name, getattr(self, name), least=least))
        self._check_heads()
        self._set(
            "mask_token_id",
            require_int("mask_token_id", self.mask_token_id, least=0, most=self.vocab_size - 1),
        )
        self._set("target_layer_ids", _checked_taps(self.target_layer_ids, self.num_target_layers))
        if not (math.isfinite(self.rms_norm_eps) and 0 < self.rms_norm_eps < 1):
            raise ConfigError(f"rms_norm_eps must be over 0 and under 1, got {self.rms_norm_eps!r}")
        self._set("rope_parameters", _checked_rope(self.rope_parameters))
        if not isinstance(self.attention_bias, bool):
            raise ConfigError(f"attention_bias must be True or False, got {self.attention_bias!r}")
        if self.hidden_act != "silu":
            raise ConfigError(
                f'hidden_act must be "silu", got {self.hidden_act!r}: engines serve no other'
            )
        self._check_layer_types()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_heads(self) -> None:
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        if heads % groups:
            raise ConfigError(
                f"num_key_value_heads must divide num_attention_heads = {heads}, got {groups}"
            )
        if self.head_dim % 2:
            raise ConfigError(
                f"head_dim must be even, since positions turn pairs, got {self.head_dim}"
            )

    def _check_layer_types(self) -> None:
        kinds = tuple(self.layer_types) or ("full_attention",) * self.num_hidden_layers
        self._set("layer_types", kinds)
        if len(kinds) != self.num_hidden_layers:
            raise ConfigError(
                f"layer_types must have one entry for each of the num_hidden_layers = "
                f"{self.num_hidden_layers} layers, got {len(kinds)}"
            )
        for kind in kinds:
            if kind not in LAYER_TYPES:
                allowed = " or ".join(LAYER_TYPES)
                raise ConfigError(f"each of layer_types must be {allowed}, got {kind!r}")
        if self.sliding_window is not None:
            self._set("sliding_window", require_int("sliding_window", self.sliding_window, least=1))
        elif "sliding_attention" in kinds:
            raise ConfigError(
                "sliding_window must be an integer from 1 where a layer of layer_types is "
                "sliding_attention, got None"
            )

    @property
    def num_taps(self) -> int:
        """How many target layers the drafter sees."""
        return len(self.target_layer_ids)

    @property
    def feature_size(self) -> int:
        """Width F of a token's features: one hidden state a tap, side by side."""
        return self.num_taps * self.hidden_size

    @classmethod
    def for_target(
        cls,
        target_config: PretrainedConfig,
        *,
        mask_token_id: int,
        num_hidden_layers: int = 5,
        block_size: int = 16,
        num_taps: int | None = None,
        target_layer_ids: Iterable[int] | None = None,
        sliding_window: int | None = None,
        vocab_size: int | None = None,
        **fields: Any,
    ) -> DrafterConfig:
        """Make the configuration of a drafter that fits a target, whatever the target's family.

        Width, heads, feed-forward width, positions and epsilon are the target's. Where its
        configuration lacks one, a rule decides; see
        :func:`~lengthwise.dflash.geometry.read_geometry`.

        Args:
            target_config: the target's configuration; of a multimodal one its text part counts.
            mask_token_id: an id inside the target's embedding that no text uses.
            num_hidden_layers: decoder layers of the drafter.
            block_size: tokens of a block.
            num_taps: target layers to tap by :func:`choose_taps`; default ``num_hidden_layers``.
            target_layer_ids: the taps by name, instead of ``num_taps``. The last layer is
                allowed: its raw output counts, before the final norm.
            sliding_window: make all layers but the last slide over this many positions. Default:
                all layers see all of the context.
            vocab_size: rows of the target's embedding, where they are more than its
                configuration says.
            **fields: any other field of this class; wins over what the target has.

        Raises:
            ConfigError: a value out of range, both ways of naming taps, or an unknown field.
        """
        from lengthwise.dflash.geometry import read_geometry

        unknown = sorted(set(fields) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise ConfigError(f"no field of DrafterConfig: {', '.join(unknown)}; it has {known}")
        if num_taps is not None and target_layer_ids is not None:
            raise ConfigError("give num_taps or target_layer_ids, not both")
        geometry = read_geometry(target_config)
        layers = geometry["num_target_layers"]
        if target_layer_ids is None:
            target_layer_ids = choose_taps(layers, num_taps or num_hidden_layers)
        if vocab_size is not None:
            geometry["vocab_size"] = vocab_size
        if sliding_window is not None:
            geometry["sliding_window"] = sliding_window
            sliding: LayerType = "sliding_attention"
            full: LayerType = "full_attention"
            geometry["layer_types"] = (sliding,) * (num_hidden_layers - 1) + (full,)
        return cls(
            **{
                **geometry,
                "mask_token_id": mask_token_id,
                "num_hidden_layers": num_hidden_layers,
                "block_size": block_size,
                "target_layer_ids": tuple(target_layer_ids),
                **fields,
            }
        )


_SMALLEST = {
    "hidden_size": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 2,
    "intermediate_size": 1,
    "vocab_size": 2,
    "block_size": 2,
    "num_target_layers": 1,
    "max_position_embeddings": 1,
}


def _checked_taps(ids: Iterable[int], num_target_layers: int) -> tuple[int, ...]:
    taps = tuple(
        require_int("each of target_layer_ids", i, least=0, most=num_target_layers - 1) for i in ids
    )
    if not taps:
        raise ConfigError(
            f"target_layer_ids must name 1 to {num_target_layers} layers of the target, got none"
        )
    if any(a >= b for a, b in pairwise(taps)):
        raise ConfigError(
            f"target_layer_ids must rise, each layer once, got {list(taps)}; take "
            f"{sorted(set(taps))}"
        )
    return taps


def _checked_rope(parameters: Mapping[str, Any]) -> dict[str, Any]:
    rope = {"rope_type": "default", **parameters}
    if rope["rope_type"] not in ROPE_TYPES:
        raise ConfigError(
            f"rope_parameters: rope_type must be one of {', '.join(ROPE_TYPES)}, got "
            f"{rope['rope_type']!r}: with others the frequencies change with the length, and "
            "training and drafting would differ"
        )
    theta = rope.get("rope_theta")
    if isinstance(theta, bool) or not isinstance(theta, (int, float)) or not theta > 0:
        raise ConfigError(f"rope_parameters: rope_theta must be a number over 0, got {theta!r}")
    rope["rope_theta"] = float(theta)
    return rope
