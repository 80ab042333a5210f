"""What offers tokens to the target: the drafter, or anything else that keeps to the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from lengthwise.dflash.decoding.sampling import draw
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.decoding.sampling import Sampling
    from lengthwise.dflash.drafter import Drafter
    from lengthwise.dflash.target import FrozenEnds, Target


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Tokens offered to the target.

    Attributes:
        token_ids: (k,) int64, the tokens after the bonus token.
        probabilities: (k, V) fp32, the distribution each was drawn from; None where nothing was
            left to chance.
    """

    token_ids: torch.Tensor
    probabilities: torch.Tensor | None = None


class Proposer(Protocol):
    """Offers the tokens that follow what the target has settled.

    One sequence at a time: ``begin``, then ``observe`` with the whole prompt, then ``propose`` and
    ``observe`` in turn. The output of decoding never depends on what is proposed, only its speed.

    Attributes:
        block_size: most tokens that one verification looks at: the bonus token and block_size - 1
            offered ones.
        layer_ids: the target's layers whose outputs ``observe`` gets, 0-based; may be empty.
    """

    @property
    def block_size(self) -> int:
        """Bonus token and offered tokens together."""

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Tapped layers of the target."""

    def begin(self) -> None:
        """Forget the last sequence."""

    def observe(self, token_ids: Sequence[int], features: torch.Tensor | None) -> None:
        """Take in tokens that are final and have been through the target.

        Args:
            token_ids: T tokens that follow those observed before.
            features: (1, T, F) outputs of the tapped layers; None without taps.
        """

    def propose(
        self, bonus: int, count: int, sampling: Sampling, generator: torch.Generator | None
    ) -> Proposal:
        """Offer up to ``count`` tokens after ``bonus``, the newest token, not yet observed."""


class DrafterProposer:
    """A DFlash drafter together with its context cache and the target's frozen ends.

    A block is [bonus, mask, ..., mask] at the positions after the context; its states at the masks
    give the offered tokens, all in one forward pass (DFlash, arXiv 2602.06036, section 4).
    """

    def __init__(self, drafter: Drafter, ends: FrozenEnds, *, zero_context: bool = False) -> None:
        """Put a drafter to work.

        Args:
            drafter: the drafter; it is used as it is and not copied.
            ends: embedding and head of the target.
            zero_context: hide the target's features from the drafter (they become zeros). What
                acceptance is left comes from the bonus token alone; a measure of how much the
                context matters.

        Raises:
            ModelError: the drafter was made for a target of another width or vocabulary.
        """
        _check_ends(drafter, ends)
        self._drafter = drafter
        self._ends = ends
        self._zero_context = zero_context
        self._cache = drafter.new_cache()

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._drafter.config.block_size

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """The drafter's taps."""
        return self._drafter.config.target_layer_ids

    def begin(self) -> None:
        """Start with an empty context."""
        self._cache = self._drafter.new_cache()

    def observe(self, token_ids: Sequence[int], features: torch.Tensor | None) -> None:
        """Add the features to the context cache; the tokens themselves are not looked at."""
        assert features is not None
        assert features.shape[1] == len(token_ids)
        features = features.to(self._drafter.device, self._drafter.dtype)
        if self._zero_context:
            features = torch.zeros_like(features)
        self._drafter.append_context(features, self._cache)

    def propose(
        self, bonus: int, count: int, sampling: Sampling, generator: torch.Generator | None
    ) -> Proposal:
        """Draft ``count`` tokens: the likeliest ones, or drawn where sampling is asked for."""
        mask = self._drafter.config.mask_token_id
        weight = self._ends.weight
        block = torch.tensor([[bonus] + [mask] * count], device=weight.device)
        embeddings = self._ends.embed(block).to(self._drafter.device)
        hidden = self._drafter.draft(embeddings, self._cache)[0, 1:]
        logits = self._ends.logits(hidden.to(weight.device))
        if sampling.greedy:
            return Proposal(logits.argmax(dim=-1))
        probabilities = sampling.probabilities(logits)
        return Proposal(draw(probabilities, generator), probabilities)


def _check_ends(drafter: Drafter, ends: FrozenEnds) -> None:
    config = drafter.config
    if config.hidden_size != ends.hidden_size:
        raise ModelError(
            f"the drafter has hidden_size {config.hidden_size} and the target {ends.hidden_size}; "
            "it was trained for another target"
        )
    if config.mask_token_id >= ends.num_embeddings:
        raise ModelError(
            f"the drafter's mask_token_id is {config.mask_token_id}, but the target embeds "
            f"{ends.num_embeddings} tokens only; it was trained for another target"
        )


def check_fit(proposer: Proposer, target: Target) -> None:
    """Raise ModelError where a proposer cannot work with a target."""
    if proposer.block_size < 1:
        raise ModelError(f"block_size must be at least 1, got {proposer.block_size}")
    beyond = [layer for layer in proposer.layer_ids if not 0 <= layer < target.num_layers]
    if beyond:
        raise ModelError(
            f"the drafter taps layer {beyond[0]} of its target, but this target has "
            f"{target.num_layers} layers (0 to {target.num_layers - 1}); it was trained for "
            "another target"
        )
