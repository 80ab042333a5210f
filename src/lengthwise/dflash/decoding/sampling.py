"""From logits to tokens: temperature, top-k and top-p, and the rule that accepts drafted tokens.

The acceptance rule is speculative sampling (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1;
Chen et al. 2023, arXiv 2302.01318): a token drafted with probability q is kept with probability
min(1, p / q); the first one that is not kept is replaced by a draw from max(0, p - q), normalised.
What comes out has the distribution p of the target, whatever q is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.dflash.decoding.proposer import Proposal


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from logits.

    Attributes:
        temperature: divides the logits; 0 takes the largest logit (greedy), the other two fields
            then change nothing.
        top_k: only the k likeliest tokens stay; None keeps all.
        top_p: only the smallest set of likeliest tokens whose probabilities reach this sum stays;
            1 keeps all.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(
                f"temperature must be a finite number of at least 0, got {self.temperature}; "
                "0 is greedy"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(
                f"top_k must be at least 1, got {self.top_k}; leave it out to keep every token"
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be in (0, 1], got {self.top_p}; 1 keeps every token")

    @property
    def greedy(self) -> bool:
        """Whether the largest logit is taken, without any chance."""
        return self.temperature == 0

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """The distribution that tokens are drawn from.

        The filters are those of Hugging Face ``generate``, in its order: temperature, top-k, top-p.

        Args:
            logits: (..., V), any floating dtype.

        Returns:
            (..., V) in fp32; each row sums to 1.
        """
        if self.greedy:
            raise ConfigError("temperature 0 is greedy and draws from no distribution")
        scores = logits.float().reshape(-1, logits.shape[-1]) / self.temperature
        ids = torch.empty(scores.shape[0], 0, dtype=torch.long, device=scores.device)
        for warper in self._filters():
            scores = warper(ids, scores)
        return torch.softmax(scores, dim=-1).reshape(logits.shape)

    def _filters(self) -> list[Any]:
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        filters: list[Any] = []
        if self.top_k is not None:
            filters.append(TopKLogitsWarper(top_k=self.top_k))
        if self.top_p < 1:
            filters.append(TopPLogitsWarper(top_p=self.top_p))
        return filters


GREEDY = Sampling()
"""Takes the largest logit."""


def choose(
    logits: torch.Tensor, sampling: Sampling, generator: torch.Generator | None
) -> torch.Tensor:
    """One token for each row of logits.

    Args:
        logits: (N, V).
        sampling: how to choose.
        generator: source of chance on the device of ``logits``; not used when greedy.

    Returns:
        Token ids (N,), int64.
    """
    if sampling.greedy:
        return logits.argmax(dim=-1)
    return draw(sampling.probabilities(logits), generator)


def draw(probabilities: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Draw one token id from each row of (N, V) probabilities or weights; (N,), int64."""
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def verify_greedy(logits: torch.Tensor, drafted: torch.Tensor) -> list[int]:
    """The target's own tokens as far as the draft agrees with them, and the one after.

    Args:
        logits: the target's at the bonus token and at each drafted one, (k + 1, V).
        drafted: drafted token ids (k,).

    Returns:
        The run to emit: n accepted tokens and one from the target, n in [0, k].
    """
    wanted, offered = logits.argmax(dim=-1).tolist(), drafted.tolist()
    num_accepted = next(
        (place for place, token in enumerate(offered) if token != wanted[place]), len(offered)
    )
    return [int(token) for token in wanted[: num_accepted + 1]]


def verify_sampled(
    logits: torch.Tensor,
    proposal: Proposal,
    sampling: Sampling,
    generator: torch.Generator | None,
) -> list[int]:
    """The accepted part of a draft and one more token, together distributed as the target's.

    Args:
        logits: the target's at the bonus token and at each drafted one, (k + 1, V).
        proposal: the drafted tokens and the distributions they were drawn from. Tokens without
            distributions count as certain (q = 1).
        sampling: temperature and filters, the same that made the proposal's distributions.
        generator: source of chance on the device of ``logits``.

    Returns:
        The run to emit: n accepted tokens and one more, n in [0, k].
    """
    p = sampling.probabilities(logits)
    drafted = proposal.token_ids.to(p.device)
    count = drafted.shape[0]
    q = _drafted_distribution(proposal, p)
    chosen = drafted[:, None]
    chance = torch.rand(count, dtype=torch.float64, device=p.device, generator=generator)
    kept = chance * q.gather(1, chosen)[:, 0] < p[:count].gather(1, chosen)[:, 0]
    num_accepted = int(kept.long().cumprod(dim=0).sum())
    weights = p[num_accepted]
    if num_accepted < count:
        residual = (weights - q[num_accepted]).clamp_min(0)
        # Where p and q are equal up to rounding nothing is left, and p itself is the limit.
        weights = residual if float(residual.sum()) > 0 else weights
    last = draw(weights[None], generator)
    return [int(token) for token in torch.cat([drafted[:num_accepted], last]).tolist()]


def _drafted_distribution(proposal: Proposal, p: torch.Tensor) -> torch.Tensor:
    if proposal.probabilities is not None:
        return proposal.probabilities.to(p.device)
    certain = torch.zeros(proposal.token_ids.shape[0], p.shape[-1], device=p.device)
    return certain.scatter_(1, proposal.token_ids.to(p.device)[:, None], 1.0)
