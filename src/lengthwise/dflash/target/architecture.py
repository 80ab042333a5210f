"""Where a causal language model keeps what a drafter needs: found by structure, not by name."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from torch import nn

from lengthwise.errors import ModelError

# Kinds of layers that look back through keys and values alone. Any other kind carries a state
# (linear attention, state space, convolution), which cannot be cut back to an earlier token.
_ATTENTION_KINDS = frozenset(
    {
        "full_attention",
        "sliding_attention",
        "chunked_attention",
        "attention",
        "indexed_attention",
        "mlp",
        "moe",
        "dense",
        "sparse",
    }
)


@dataclass(frozen=True, eq=False)
class Architecture:
    """The parts of a causal language model that lengthwise works with.

    Attributes:
        config: the language model's own configuration; of a model with a vision or audio tower,
            the text part.
        decoder: the module from token ids to hidden states, without the output head.
        layers: the decoder's layers in order, ``config.num_hidden_layers`` of them.
        embeddings: from token ids to vectors of ``hidden_size``.
        head: from the final hidden states to logits, without what a model does to logits later.
        recurrent: whether any layer carries a state besides keys and values.
    """

    config: Any
    decoder: nn.Module
    layers: nn.ModuleList
    embeddings: nn.Module
    head: nn.Module
    recurrent: bool


def find_architecture(model: nn.Module) -> Architecture:
    """Find the parts of a Hugging Face causal language model.

    Raises:
        ModelError: a part is not there; the message says what was looked for and what was found.
    """
    kind = type(model).__name__
    config = _text_config(model, kind)
    decoder = _decoder(model, kind)
    layers = _layers(decoder, config, kind)
    width = int(config.hidden_size)
    embeddings = _embeddings(model, kind)
    head = _head(model, kind)
    for name, module in (("input embeddings", embeddings), ("output head", head)):
        _check_matrix(name, module, width, kind)
    return Architecture(config, decoder, layers, embeddings, head, _recurrent(model, config))


def _text_config(model: nn.Module, kind: str) -> Any:
    config = getattr(model, "config", None)
    if config is None:
        raise ModelError(f"a target needs a Hugging Face config, and {kind} has no .config")
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"a target must be a decoder-only causal language model; {kind} is an encoder-decoder"
            " (config.is_encoder_decoder is true)"
        )
    if hasattr(config, "get_text_config"):
        config = config.get_text_config(decoder=True)
    missing = [n for n in ("num_hidden_layers", "hidden_size") if not hasattr(config, n)]
    if missing:
        raise ModelError(
            f"the configuration of {kind} ({type(config).__name__}) has no"
            f" {' and no '.join(missing)}"
        )
    return config


def _decoder(model: nn.Module, kind: str) -> nn.Module:
    """What get_decoder() or base_model gives, or the child with the embeddings; never the model."""
    getter = getattr(model, "get_decoder", None)
    candidates = {
        "get_decoder()": getter() if callable(getter) else None,
        "base_model": getattr(model, "base_model", None),
        "the child that holds the input embeddings": _child_with_embeddings(model),
    }
    for candidate in candidates.values():
        if isinstance(candidate, nn.Module) and candidate is not model:
            return candidate
    found = ", ".join(f"{name}: {type(value).__name__}" for name, value in candidates.items())
    raise ModelError(
        f"looked for the decoder of {kind}, to run it without its output head, and found {found}"
    )


def _child_with_embeddings(model: nn.Module) -> nn.Module | None:
    getter = getattr(model, "get_input_embeddings", None)
    embeddings = getter() if callable(getter) else None
    for child in model.children():
        if child is not embeddings and any(part is embeddings for part in child.modules()):
            return child
    return None


def _layers(decoder: nn.Module, config: Any, kind: str) -> nn.ModuleList:
    """The one ModuleList of num_hidden_layers layers that lies nearest to the decoder's root."""
    count = int(config.num_hidden_layers)
    seen: list[str] = []
    level: deque[tuple[str, nn.Module]] = deque([("", decoder)])
    while level:
        lists = [(n, m) for n, m in level if isinstance(m, nn.ModuleList)]
        seen += [f"{name} ({len(m)})" for name, m in lists]
        fitting = [(n, m) for n, m in lists if len(m) == count]
        if fitting:
            # Beside the layers some models keep a small list of as many gates or projections.
            sizes = [sum(p.numel() for p in m.parameters()) for _, m in fitting]
            return fitting[sizes.index(max(sizes))][1]
        level = deque(
            (f"{name}.{child}".lstrip("."), module)
            for name, parent in level
            if not isinstance(parent, nn.ModuleList)
            for child, module in parent.named_children()
        )
    raise ModelError(
        f"looked in {type(decoder).__name__} of {kind} for a ModuleList of"
        f" num_hidden_layers = {count} layers, and found {', '.join(seen) or 'no ModuleList'}"
    )


def _embeddings(model: nn.Module, kind: str) -> nn.Module:
    getter = getattr(model, "get_input_embeddings", None)
    found = getter() if callable(getter) else None
    if not isinstance(found, nn.Module):
        raise ModelError(
            f"looked for the input embeddings of {kind} by get_input_embeddings(), and found"
            f" {type(found).__name__}"
        )
    return found


def _head(model: nn.Module, kind: str) -> nn.Module:
    getter = getattr(model, "get_output_embeddings", None)
    found = getter() if callable(getter) else None
    if not isinstance(found, nn.Module):
        raise ModelError(
            f"a target needs an output head over its vocabulary: get_output_embeddings() of {kind}"
            f" gave {type(found).__name__}; load it as a causal language model"
        )
    return found


def _check_matrix(name: str, module: nn.Module, width: int, kind: str) -> None:
    """The weight must be (tokens, hidden_size) of floating point, as a drafter shares it."""
    weight = getattr(module, "weight", None)
    shape = None if weight is None else tuple(weight.shape)
    if weight is None or shape is None or len(shape) != 2 or shape[1] != width:
        raise ModelError(
            f"a drafter shares the {name} of its target, a weight of shape (vocabulary,"
            f" hidden_size = {width}); {type(module).__name__} of {kind} has"
            f" {'no weight' if shape is None else shape}"
        )
    if not weight.is_floating_point():
        raise ModelError(
            f"the {name} of {kind} are stored as {weight.dtype}; a drafter shares them as floating"
            " point: load the target without quantising them"
        )


def _recurrent(model: nn.Module, config: Any) -> bool:
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    unusual = any(str(kind) not in _ATTENTION_KINDS for kind in kinds)
    return unusual or bool(getattr(model, "_is_stateful", False))
