"""What a target's weights take, counted without loading any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.target.architecture import find_architecture
from lengthwise.dflash.target.load import load_target_config

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


@dataclass(frozen=True, slots=True)
class TargetBytes:
    """Bytes of a target's weights.

    Attributes:
        weights: all of them, each once.
        ends: embedding and head alone.
    """

    weights: int
    ends: int


def target_bytes(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> TargetBytes | None:
    """Count a target's weights by its configuration, in the dtype it would be loaded in.

    The arguments and errors are those of :func:`~lengthwise.dflash.target.load_target`. None where
    the configuration does not tell: quantised weights, and models that transformers makes by
    another class.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    _, wanted = load_target_config(
        name_or_path,
        dtype=dtype,
        gguf_file=gguf_file,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    more = {} if gguf_file is None else {"gguf_file": gguf_file}
    config = transformers.AutoConfig.from_pretrained(
        str(name_or_path), revision=revision, trust_remote_code=trust_remote_code, **more
    )
    known = config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if not known or getattr(config, "quantization_config", None) is not None:
        return None
    with torch.device("meta"):
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, trust_remote_code=trust_remote_code
        )
    model.tie_weights()  # type: ignore[operator]
    parts = find_architecture(model)
    ends = torch.nn.ModuleList([parts.embeddings, parts.head])
    return TargetBytes(*(_count(module) * wanted.itemsize for module in (model, ends)))


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
