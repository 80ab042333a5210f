"""The part of a config that both formats share: the drafter's own transformer.

Written so that transformers 4 (``rope_theta``, ``rope_scaling``) and 5 (``rope_parameters``) read
the same model. Read from the plain JSON, so that a published file is judged by what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.config import DrafterConfig
from lengthwise.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PretrainedConfig

PLAIN = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "attention_bias",
)
"""Fields that stand under the same name in a DrafterConfig and in a config.json."""

UNSUPPORTED = {
    "quantization_config": (None,),
    "input_embedding_scale": (None, 1, 1.0),
    "output_multiplier": (None, 1, 1.0),
    "final_logit_softcapping": (None, 0, 0.0),
    "logit_scale": (None, 1, 1.0),
    "use_swa": (None, False),
    "attention_sink_bias": (None, False),
    "add_swa_attention_sink_bias": (None, False),
    "attention_value_scale": (None, 1, 1.0),
    "projector_type": (None, "dflash"),
    "sample_from_anchor": (None, False),
    "shift_label": (None, False),
    "is_neox_style": (None, True),
    "rope_is_neox_style": (None, True),
}
"""Fields of published relatives that change what is computed, with the values that change nothing.
A drafter with another value is refused: it would load, and then draft worse without an error."""


@dataclass(frozen=True)
class TargetFacts:
    """What a checkpoint says about its target, so that a wrong pair is found before it is slow."""

    name: str | None = None
    """Directory, or name on the Hugging Face hub."""
    architectures: tuple[str, ...] = ()
    bos_token_id: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None

    @classmethod
    def of(cls, target: PretrainedConfig | None, name: str | None = None) -> TargetFacts:
        """What the config of a target says; of a composed model (with vision) the text part."""
        if target is None:
            return cls(name=name)
        text = target.get_text_config(decoder=True)
        eos = getattr(text, "eos_token_id", None)
        return cls(
            name=name or getattr(target, "name_or_path", None) or None,
            architectures=tuple(target.architectures or ()),
            bos_token_id=getattr(text, "bos_token_id", None),
            eos_token_id=tuple(eos) if isinstance(eos, (list, tuple)) else eos,
        )

    def token_ids(self) -> dict[str, Any]:
        """The two ids as a config.json holds them."""
        eos = self.eos_token_id
        return {
            "bos_token_id": self.bos_token_id,
            "eos_token_id": list(eos) if isinstance(eos, tuple) else eos,
        }


def read_target_config(name_or_path: str) -> PretrainedConfig:
    """The config of a target, a directory or a name on the hub; its weights are not read.

    Raises:
        ModelError: there is none, or the installed transformers does not know the model.
    """
    from transformers import AutoConfig

    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(name_or_path)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"target {name_or_path}: its config cannot be read: {error}") from error
    return config


def transformer_dict(config: DrafterConfig, dtype: str, target: TargetFacts) -> dict[str, Any]:
    """The fields of ``config.json`` that describe the transformer, as a Qwen3 config."""
    rope = dict(config.rope_parameters)
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    sliding = "sliding_attention" in config.layer_types
    return {
        "model_type": "qwen3",
        **{name: getattr(config, name) for name in PLAIN},
        "attention_dropout": 0.0,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": None if scaling.get("rope_type", "default") == "default" else scaling,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "layer_types": list(config.layer_types),
        "use_sliding_window": sliding,
        "sliding_window": config.sliding_window if sliding else None,
        "max_window_layers": config.num_hidden_layers,
        "use_cache": True,
        **target.token_ids(),
        "dtype": dtype,
    }


def drafter_config(raw: Mapping[str, Any], own: Mapping[str, Any], where: str) -> DrafterConfig:
    """The config that a transformer's JSON and a format's own fields describe.

    Args:
        raw: the JSON of the transformer; fields it leaves out have its model type's defaults, as
            transformers reads them.
        own: ``block_size``, ``mask_token_id``, ``target_layer_ids``, ``num_target_layers``.
        where: the file, for messages.

    Raises:
        ModelError: a field that this drafter does not have, or none of what it needs.
    """
    defaults = _defaults(raw, where)

    def value(name: str) -> Any:
        return raw[name] if raw.get(name) is not None else getattr(defaults, name, None)

    if not raw.get("layer_types") and raw.get("use_sliding_window"):
        raise ModelError(f"{where}: use_sliding_window is true, but layer_types does not say where")
    try:
        types = tuple(raw.get("layer_types") or ())
        sliding = "sliding_attention" in types
        return DrafterConfig(
            **{name: value(name) for name in PLAIN},
            rope_parameters=_rope(raw, defaults, where),
            layer_types=types,
            sliding_window=raw.get("sliding_window") if sliding else None,
            **own,
        )
    except (ConfigError, TypeError) as error:
        raise ModelError(f"{where}: {error}") from error


def refuse_unsupported(raw: Mapping[str, Any], where: str) -> None:
    """Refuse a field of a published relative that would change what is computed."""
    for name, harmless in UNSUPPORTED.items():
        if raw.get(name) not in harmless:
            raise ModelError(
                f"{where}: {name} is {raw[name]!r}, which this drafter does not compute; it would "
                f"load and then draft worse without an error, so it is refused"
            )
    for name in ("is_causal", "causal"):
        _check_causal(raw, name, where)


def _check_causal(raw: Mapping[str, Any], name: str, where: str) -> None:
    causal = raw.get(name)
    kinds = raw.get("layer_types") or ["full_attention"]
    sliding = {kind == "sliding_attention" for kind in kinds}
    if causal is not None and sliding != {bool(causal)}:
        raise ModelError(
            f"{where}: {name} is {causal!r}, but here full_attention layers see their whole block "
            f"and sliding_attention layers what is before; nothing else is computed"
        )


def _defaults(raw: Mapping[str, Any], where: str) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        return AutoConfig.for_model(str(raw.get("model_type") or "qwen3"))
    except ValueError:
        raise ModelError(
            f"{where}: model_type is {raw.get('model_type')!r}, which the installed transformers "
            f"does not have; DFlash drafters are 'qwen3'"
        ) from None


def _rope(raw: Mapping[str, Any], defaults: PretrainedConfig, where: str) -> dict[str, Any]:
    """``rope_parameters`` as transformers 5 writes them, from either generation's fields."""
    theta = raw.get("rope_theta")
    found = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(found, dict) or any(isinstance(value, dict) for value in found.values()):
        raise ModelError(f"{where}: the rotary embedding must be one for all layers, not {found!r}")
    rope = dict(found)
    kind = rope.pop("type", None)
    rope.setdefault("rope_type", kind or "default")
    if theta is not None and rope.setdefault("rope_theta", theta) != theta:
        raise ModelError(
            f"{where}: rope_theta is {theta}, but rope_parameters say {rope['rope_theta']}; "
            f"transformers 4 and 5 would read two models"
        )
    if "rope_theta" not in rope:
        known = getattr(defaults, "rope_parameters", None) or vars(defaults)
        rope["rope_theta"] = known.get("rope_theta", 10_000.0)
    return rope
