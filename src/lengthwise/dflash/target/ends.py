"""The two ends of a target that its drafter shares: the embedding table and the output head."""

from __future__ import annotations

import copy

import torch
from torch import nn

from lengthwise.errors import DataError


class FrozenEnds(nn.Module):
    """Embedding and head of a target: frozen, shared with it, and usable without it.

    ``FrozenEnds(embeddings, head)`` shares memory with the modules given. ``copy_to(device)``
    gives an independent copy; tied weights stay one tensor in it.

    The embedding is the target's own module, so what it does besides the look-up (Gemma 3 scales
    by sqrt(hidden_size) inside it) is kept. The head is ``hidden @ weight.T + bias``. What some
    models do to logits afterwards (a soft cap, a constant scale) keeps their order, so greedy
    drafts are the same without it, and sampled drafts stay lossless since the drafter's own
    distribution enters the acceptance rule.

    Attributes:
        weight: of the head, (V, D), frozen.
        bias: of the head, (V,), frozen, or None.
        tied: whether head and embedding are one tensor.
    """

    def __init__(self, embeddings: nn.Module, head: nn.Module) -> None:
        """Share the two modules, whose weights are (tokens, D), and freeze them."""
        super().__init__()
        self.embeddings = embeddings.requires_grad_(False)
        self.head = head.requires_grad_(False)

    @property
    def weight(self) -> torch.Tensor:
        """The head's weight, shape (V, D)."""
        weight = self.head.weight
        assert isinstance(weight, torch.Tensor)
        return weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The head's bias, shape (V,), or None."""
        bias = getattr(self.head, "bias", None)
        assert bias is None or isinstance(bias, torch.Tensor)
        return bias

    @property
    def tied(self) -> bool:
        """Whether head and embedding are one tensor."""
        return self._table is self.weight

    @property
    def hidden_size(self) -> int:
        """Width D of embeddings and of the states that the head takes."""
        return int(self.weight.shape[1])

    @property
    def vocab_size(self) -> int:
        """Rows V of the head: the number of logits; may exceed ``config.vocab_size``."""
        return int(self.weight.shape[0])

    @property
    def num_embeddings(self) -> int:
        """Rows of the embedding table; ids of input tokens and of the mask lie below it."""
        return int(self._table.shape[0])

    @property
    def _table(self) -> torch.Tensor:
        table = self.embeddings.weight
        assert isinstance(table, torch.Tensor)
        return table

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings (..., D) of token ids (...). No gradient reaches the table."""
        embedded = self.embeddings(input_ids)
        assert isinstance(embedded, torch.Tensor)
        return embedded

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., V) of final hidden states (..., D); gradients flow to ``hidden`` alone."""
        return nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same as :meth:`logits`."""
        return self.logits(hidden)

    def check_ids(self, input_ids: torch.Tensor, where: str) -> None:
        """Raise DataError when an id of ``where`` has no row in the embedding table."""
        if input_ids.numel() == 0:
            return
        low, high = int(input_ids.min()), int(input_ids.max())
        if low < 0 or high >= self.num_embeddings:
            raise DataError(
                f"{where}: token ids must lie in [0, {self.num_embeddings}), the rows of the"
                f" target's embedding table; found {low if low < 0 else high}"
            )

    def copy_to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> FrozenEnds:
        """An independent copy on ``device``, in ``dtype`` if given; tied weights stay tied."""
        # deepcopy meets each weight in its memo, already copied to where it goes: a tied weight
        # stays one, and nothing is copied twice. What is left to move are small buffers.
        memo: dict[int, object] = {
            id(weight): nn.Parameter(
                weight.detach().to(device=device, dtype=dtype, copy=True), requires_grad=False
            )
            for weight in self.parameters()
        }
        embeddings, head = copy.deepcopy((self.embeddings, self.head), memo)
        return FrozenEnds(embeddings, head).to(device=device, dtype=dtype)
