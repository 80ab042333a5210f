"""A target: a frozen causal language model, run for the hidden states of some of its layers."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.dflash.target.architecture import find_architecture
from lengthwise.dflash.target.ends import FrozenEnds
from lengthwise.dflash.target.positions import check_length_free, rows_alone
from lengthwise.dflash.target.taps import LastTapReached, Taps, check_layer_ids
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


class Target:
    """A frozen causal language model: features for training, forwards for decoding.

    Layer id i means the output of decoder layer i, counted from 0: ``hidden_states[i + 1]`` of
    ``output_hidden_states`` for all but the last layer. The last one's is the raw state before
    the final norm, where ``output_hidden_states`` has the normed state. (Some models, Mamba 2
    among them, leave the embeddings out of that list; layer ids here mean the same in all.)

    Attributes:
        model: the Hugging Face causal language model, frozen and in evaluation mode.
        config: configuration of the language model; of a model with towers, its text part.
        ends: embedding table and output head, which a drafter shares.
        recurrent: whether some layer carries a state that cannot be cut back to an earlier token.
    """

    def __init__(self, model: nn.Module) -> None:
        """Take ``model`` as it is, freeze its weights and put it in evaluation mode.

        Raises:
            ModelError: ``model`` lacks a part that a target needs; the message names it.
        """
        parts = find_architecture(model)
        self.model: Any = model.requires_grad_(False).eval()
        self.config = parts.config
        self.ends = FrozenEnds(parts.embeddings, parts.head)
        self.recurrent = parts.recurrent
        self._parts = parts
        accepted = inspect.signature(parts.decoder.forward).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        self._no_cache = {"use_cache": False} if open_ended or "use_cache" in accepted else {}

    @property
    def decoder(self) -> nn.Module:
        """The module from token ids to final hidden states, without the head."""
        return self._parts.decoder

    @property
    def num_layers(self) -> int:
        """Decoder layers; layer ids lie in [0, num_layers)."""
        return len(self._parts.layers)

    @property
    def hidden_size(self) -> int:
        """Width D of the hidden states."""
        return self.ends.hidden_size

    @property
    def vocab_size(self) -> int:
        """Number of logits V: rows of the head, which may exceed ``config.vocab_size``."""
        return self.ends.vocab_size

    @property
    def device(self) -> torch.device:
        """Where token ids go in: the device of the embedding table."""
        return next(self.ends.embeddings.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the embedding table, and so of the hidden states."""
        return next(self.ends.embeddings.parameters()).dtype

    def features(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        layer_ids: Sequence[int],
    ) -> torch.Tensor:
        """Hidden states of the tapped layers, side by side in the order of ``layer_ids``.

        Runs the decoder without head and cache, and no layer above the deepest tap. Runs under
        no_grad rather than inference_mode: the drafter's backward pass must be able to save the
        result.

        Args:
            input_ids: token ids (R, S), any valid id under the padding; any device.
            attention_mask: (R, S), 1 for tokens and then 0 for padding, which stands right;
                None when nothing is padded.
            layer_ids: which layers' outputs, each in [0, num_layers).

        Returns:
            (R, S, F) with F = len(layer_ids) * hidden_size, on the target's device and of its
            type. What stands at padded positions has no meaning and is to be stripped.

        Raises:
            ConfigError: a layer id that is not there.
            DataError: ids outside the vocabulary, or padding that is not on the right.
        """
        check_layer_ids(layer_ids, self.num_layers)
        lengths = _check_rows(input_ids, attention_mask)
        self.ends.check_ids(input_ids, "input_ids")
        check_length_free(self.config, input_ids.shape[1])
        if attention_mask is not None and rows_alone(self.config, lengths, input_ids.shape[1]):
            return self._row_by_row(input_ids, lengths, layer_ids)
        if attention_mask is not None:
            attention_mask = attention_mask.to(self.device, torch.long)
        return self._run(input_ids.to(self.device), attention_mask, layer_ids)

    def capture(self, layer_ids: Sequence[int]) -> Taps:
        """A context in which every forward of the model leaves its features behind.

        ``with target.capture(ids) as taps: target.model(...); taps.features`` has the states
        (R, S, F) of the positions of the latest forward, cached or not, with all layers run.
        """
        return Taps(self._parts.layers, layer_ids, self.hidden_size, stop=False)

    def _run(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        layer_ids: Sequence[int],
    ) -> torch.Tensor:
        taps = Taps(self._parts.layers, layer_ids, self.hidden_size, stop=True)
        with torch.no_grad(), taps, contextlib.suppress(LastTapReached):
            self.decoder(input_ids=input_ids, attention_mask=attention_mask, **self._no_cache)
        return taps.features

    def _row_by_row(
        self, input_ids: torch.Tensor, lengths: list[int], layer_ids: Sequence[int]
    ) -> torch.Tensor:
        """Every row alone at its own length, for positions that depend on the longest row."""
        width = len(layer_ids) * self.hidden_size
        shape = (*input_ids.shape, width)
        states = torch.zeros(shape, dtype=self.dtype, device=self.device)
        for row, length in enumerate(lengths):
            ids = input_ids[row : row + 1, :length].to(self.device)
            states[row, :length] = self._run(ids, None, layer_ids)[0]
        return states


def _check_rows(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[int]:
    """Lengths of the rows.

    Raises:
        DataError: shapes that do not fit, a row without tokens, or padding left of a token.
    """
    shape = tuple(input_ids.shape)
    if len(shape) != 2 or 0 in shape:
        raise DataError(f"input_ids must be of shape (rows, columns), none of them 0; got {shape}")
    if attention_mask is None:
        return [shape[1]] * shape[0]
    if tuple(attention_mask.shape) != shape:
        raise DataError(
            f"attention_mask must have the shape of input_ids, {shape};"
            f" got {tuple(attention_mask.shape)}"
        )
    mask = attention_mask.to(torch.long)
    lengths = mask.sum(dim=1)
    columns = torch.arange(shape[1], device=mask.device)
    wrong = (mask != (columns < lengths[:, None])).any(dim=1) | (lengths == 0)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        raise DataError(
            f"attention_mask: row {row} must be ones for its tokens and then zeros (padding stands"
            f" right, and a row has a token); got {attention_mask[row].tolist()[:20]}"
        )
    return [int(n) for n in lengths.tolist()]
