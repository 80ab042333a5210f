"""Keys and values of a text's context, kept while drafts are made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.dflash.layers import KeyValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

_FIRST_CAPACITY = 64


class ContextCache:
    """Each layer's keys and values of the context, and of nothing else.

    A block's own keys and values never enter it. :class:`~lengthwise.dflash.drafter.Drafter`
    fills it by ``append_context`` and reads it in ``draft``. Sliding layers keep all of the
    context too, so that :meth:`crop` can always go back. Room doubles when it runs out.
    """

    def __init__(self, num_layers: int) -> None:
        """Make an empty cache for a drafter of ``num_layers`` layers."""
        self._num_layers = num_layers
        self._layers: list[KeyValues] = []
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens of context it holds; the next block's anchor stands at this position."""
        return self._length

    def extend(self, layers: Sequence[KeyValues]) -> None:
        """Append the same tokens to every layer; keys and values (R, key heads, T, head_dim)."""
        if len(layers) != self._num_layers:
            raise ValueError(f"one entry a layer: {self._num_layers} layers, got {len(layers)}")
        added = layers[0].keys.shape[2]
        if not self._layers:
            self._layers = [KeyValues(*(x[:, :, :0] for x in layer)) for layer in layers]
        needed = self._length + added
        if self._layers[0].keys.shape[2] < needed:
            capacity = max(_FIRST_CAPACITY, 2 * self._length, needed)
            self._layers = [
                KeyValues(*(self._grown(x, capacity) for x in layer)) for layer in self._layers
            ]
        for kept, new in zip(self._layers, layers, strict=True):
            kept.keys[:, :, self._length : needed] = new.keys
            kept.values[:, :, self._length : needed] = new.values
        self._length = needed

    def layer(self, index: int) -> KeyValues:
        """Keys and values of a layer; views, valid until the next change."""
        keys, values = self._layers[index]
        return KeyValues(keys[:, :, : self._length], values[:, :, : self._length])

    def crop(self, length: int) -> None:
        """Forget all tokens from position ``length`` on.

        Raises:
            ValueError: the cache does not hold that many tokens.
        """
        if not 0 <= length <= self._length:
            raise ValueError(
                f"crop(length) takes 0 to {self._length}, the tokens in the cache, got {length}"
            )
        self._length = length

    def _grown(self, tensor: torch.Tensor, capacity: int) -> torch.Tensor:
        rows, heads, _, width = tensor.shape
        grown = tensor.new_empty(rows, heads, capacity, width)
        grown[:, :, : self._length] = tensor[:, :, : self._length]
        return grown
