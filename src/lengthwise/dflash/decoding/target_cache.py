"""The target's cache while decoding: run tokens through, then keep only the first few of them.

How tokens are taken back depends on the layer. What a layer can do is looked up, not its version:

- attention layers are cut: ``crop`` with a negative number (a positive one is refused by
  transformers 5 and means something else in 4);
- sliding-window layers throw tokens away. Where they can record their past (transformers 5) they
  do so from the first verification on, and are cut; else they are copied, as the next kind;
- layers that carry a state (linear attention, state space, convolution) cannot be cut. They are
  copied before a verification and put back after it, and the accepted tokens run once more. That
  costs a second forward for every verification in which a drafted token was turned down.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ModelError

if TYPE_CHECKING:
    import torch

    from lengthwise.dflash.target import Taps, Target

_ARGUMENTS = ("cache", "past_key_values", "cache_params")
"""What ``forward`` calls its cache and what its output does, newest name first."""


class TargetCache:
    """One sequence in the target, empty at first.

    Attributes:
        num_forwards: forwards of the target so far, re-runs included.
        num_reruns: how many of them ran accepted tokens again.
    """

    def __init__(self, target: Target, taps: Taps | None = None) -> None:
        """Take a target and, where features are wanted, an entered ``target.capture(...)``.

        Raises:
            ModelError: the target's ``forward`` has no argument for a cache.
        """
        accepted = inspect.signature(target.model.forward).parameters
        self._argument = next((name for name in _ARGUMENTS if name in accepted), "")
        if not self._argument:
            raise ModelError(
                f"{type(target.model).__name__}.forward takes no cache (looked for "
                f"{', '.join(_ARGUMENTS)}); decoding needs one"
            )
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._target = target
        self._taps = taps
        self._cache: Any = None
        self._copies: dict[int, Any] = {}
        self._tokens: torch.Tensor | None = None
        self.num_forwards = 0
        self.num_reruns = 0

    def extend(
        self, token_ids: torch.Tensor, *, revocable: bool = False, last_only: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run more tokens of the sequence through the target.

        Args:
            token_ids: (T,) int64 on the target's device, T >= 1.
            revocable: ``keep`` will follow. Not for the first tokens of a sequence.
            last_only: the logits of the last token are enough.

        Returns:
            Logits (T, V), or (1, V) with ``last_only``, and features (1, T, F) or None.
        """
        if revocable:
            self._prepare()
            self._tokens = token_ids
        logits = self._forward(token_ids, last_only=last_only)
        return logits, None if self._taps is None else self._taps.features

    def keep(self, count: int) -> None:
        """Take back all but the first ``count`` tokens of the last, revocable ``extend``.

        Args:
            count: from 1 to the number of tokens of that call.
        """
        assert self._tokens is not None
        tokens, self._tokens = self._tokens, None
        copies, self._copies = self._copies, {}
        dropped = tokens.shape[0] - count
        assert 0 <= dropped < tokens.shape[0]
        if not copies:
            for layer in self._cache.layers:
                _cut(layer, dropped)
        elif dropped:
            for place, layer in enumerate(self._cache.layers):
                if place in copies:
                    self._cache.layers[place] = copies[place]
                else:
                    _cut(layer, tokens.shape[0])
            self.num_reruns += 1
            self._forward(tokens[:count], last_only=True)

    def _prepare(self) -> None:
        """Before a verification: let layers record, and copy those that cannot be cut."""
        layers = getattr(self._cache, "layers", None)
        if layers is None:
            raise ModelError(
                f"the cache of {type(self._target.model).__name__}, {type(self._cache).__name__}, "
                "is not made of layers, so tokens cannot be taken back from it; a newer "
                "transformers may help. Plain decoding works"
            )
        for layer in layers:
            if hasattr(layer, "activate_past_recording") and not _has_state(layer):
                layer.activate_past_recording()
        self._copies = {
            place: copy.deepcopy(layer) for place, layer in enumerate(layers) if not _can_cut(layer)
        }

    def _forward(self, token_ids: torch.Tensor, *, last_only: bool) -> torch.Tensor:
        self.num_forwards += 1
        arguments = {self._argument: self._cache} if self._cache is not None else {}
        fewer = self._last_only if last_only else {}
        ids = token_ids[None].to(self._target.device)
        output = self._target.model(ids, use_cache=True, **arguments, **fewer)
        self._cache = getattr(output, self._argument)
        logits: torch.Tensor = output.logits[0]
        return logits[-1:] if last_only else logits


def _has_state(layer: Any) -> bool:
    return hasattr(layer, "conv_states") or hasattr(layer, "recurrent_states")


def _can_cut(layer: Any) -> bool:
    if _has_state(layer) or not hasattr(layer, "crop"):
        return False
    return not getattr(layer, "is_sliding", False) or getattr(layer, "record_past", False)


def _cut(layer: Any, dropped: int) -> None:
    # A layer that records its past forgets what lies before its window only in crop, so it is
    # called even with 0. Other layers of transformers 4 would take 0 for "keep nothing".
    if dropped or getattr(layer, "record_past", False):
        layer.crop(-dropped)
