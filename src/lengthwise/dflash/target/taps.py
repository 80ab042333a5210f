"""Forward hooks on the tapped decoder layers: the states of a forward pass, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from lengthwise.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.hooks import RemovableHandle


class LastTapReached(Exception):  # noqa: N818 - it ends a forward pass early and is no error
    """Raised by the deepest tap when the layers above it need not run."""


def check_layer_ids(layer_ids: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The layer ids as a tuple.

    Raises:
        ConfigError: none given, one given twice, or one outside [0, num_layers).
    """
    ids = tuple(int(i) for i in layer_ids)
    outside = [i for i in ids if not 0 <= i < num_layers]
    if not ids or outside or len(set(ids)) != len(ids):
        raise ConfigError(
            f"target_layer_ids must be distinct ids in [0, {num_layers - 1}], where i is the output"
            f" of decoder layer i; got {list(ids)}"
        )
    return ids


class Taps:
    """While entered, keeps the outputs of some decoder layers of the latest forward pass.

    Only tapped layers are kept, each copied at once to its place in one tensor, so the peak is
    that tensor and one layer's output. However the ``with`` block ends, the hooks go.
    """

    def __init__(
        self, layers: nn.ModuleList, layer_ids: Sequence[int], hidden_size: int, *, stop: bool
    ) -> None:
        """Tap ``layers[i]`` for i in ``layer_ids``.

        Args:
            layers: the decoder layers, in the order in which they run.
            layer_ids: which to tap; their states stand in this order in ``features``.
            hidden_size: the width that each output must have.
            stop: raise LastTapReached out of the forward pass after the deepest tapped layer.
        """
        self.layer_ids = check_layer_ids(layer_ids, len(layers))
        self._layers = layers
        self._width = hidden_size
        self._stop = stop
        self._states: torch.Tensor | None = None
        self._filled: set[int] = set()
        self._handles: list[RemovableHandle] = []

    @property
    def features(self) -> torch.Tensor:
        """States of the latest forward pass: (R, S, F), F = taps * hidden_size, no gradient.

        Raises:
            ModelError: no forward pass has run through the tapped layers yet.
        """
        if self._states is None or len(self._filled) < len(self.layer_ids):
            missing = [i for i in self.layer_ids if i not in self._filled]
            raise ModelError(
                f"no features: decoder layers {missing} have not run since the taps were set;"
                " run the target's decoder inside the `with` block"
            )
        return self._states

    def __enter__(self) -> Self:
        """Set the hooks."""
        for layer_id in self.layer_ids:
            hook = self._hook(layer_id, self.layer_ids.index(layer_id) * self._width)
            self._handles.append(self._layers[layer_id].register_forward_hook(hook))
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the hooks; the features stay."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, layer_id: int, start: int) -> Any:
        first, last = min(self.layer_ids), max(self.layer_ids)

        def keep(module: nn.Module, _: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            if not isinstance(state, torch.Tensor) or state.ndim != 3:
                raise ModelError(_unusual(layer_id, module, state, self._width))
            if state.shape[-1] != self._width:
                raise ModelError(_unusual(layer_id, module, state, self._width))
            if layer_id == first:  # a new forward pass: a new tensor, the old one may be in use
                shape = (*state.shape[:2], len(self.layer_ids) * self._width)
                self._states = state.new_empty(shape, requires_grad=False)
                self._filled = set()
            assert self._states is not None
            self._states[..., start : start + self._width].copy_(state.detach())
            self._filled.add(layer_id)
            if self._stop and layer_id == last:
                raise LastTapReached

        return keep


def _unusual(layer_id: int, module: nn.Module, state: Any, width: int) -> str:
    found = tuple(state.shape) if isinstance(state, torch.Tensor) else type(state).__name__
    return (
        f"decoder layer {layer_id} ({type(module).__name__}) must give hidden states of shape"
        f" (rows, columns, hidden_size = {width}), as a tensor or first in a tuple; it gave {found}"
    )
