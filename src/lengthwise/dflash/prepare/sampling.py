"""Draws that depend on the seed, the row, the turn and the position alone.

Generation in batches usually takes its random numbers from one stream, so that an answer changes
with whatever else is in the batch. Here each position of each answer has its own number in
[0, 1), and the token is the one at that place of the cumulative distribution (inverse transform
sampling). What is left of the batch is the rounding of its logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lengthwise.core.random import derive_key, mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.prepare.settings import GenerationSettings

_RESOLUTION = 53


class KeyedSampler:
    """A logits processor that leaves one token of each row possible: the drawn one."""

    def __init__(
        self, settings: GenerationSettings, keys: Sequence[tuple[int, int]], prompt_length: int
    ) -> None:
        """Draw for rows with these (row, turn), whose answers start at ``prompt_length``."""
        self._settings = settings
        self._keys = [derive_key(settings.seed, row, turn) for row, turn in keys]
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (R, V) in, the same shape out: 0 for the drawn token, -inf elsewhere."""
        step = input_ids.shape[1] - self._prompt_length
        uniform = [
            (mix(key, step + 1) >> (64 - _RESOLUTION)) / 2**_RESOLUTION for key in self._keys
        ]
        places = torch.tensor(uniform, dtype=torch.float64, device=scores.device)
        drawn = draw(scores, places, self._settings)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)


def draw(scores: torch.Tensor, places: torch.Tensor, settings: GenerationSettings) -> torch.Tensor:
    """The token at each place of the cumulative distribution.

    Args:
        scores: logits (R, V).
        places: numbers in [0, 1), (R,).
        settings: temperature above 0, ``top_k`` and ``top_p``; the probability of tokens is cut
            in this order, as is usual.

    Returns:
        Token ids (R,).
    """
    logits = scores.to(torch.float64) / settings.temperature
    logits, order = logits.sort(dim=1, descending=True, stable=True)
    if settings.top_k:
        logits[:, settings.top_k :] = -torch.inf
    sums = logits.softmax(dim=1).cumsum(dim=1)
    # A token is kept while the tokens before it do not reach top_p, so the first always is.
    before = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], dim=1)
    kept = (before < settings.top_p) & torch.isfinite(logits)
    mass = torch.where(kept, sums, 0.0).amax(dim=1, keepdim=True)
    index = torch.searchsorted(sums, places[:, None] * mass, right=True)
    last = kept.sum(dim=1, keepdim=True) - 1  # rounding may lead beyond the last kept token
    return order.gather(1, torch.minimum(index, last))[:, 0]
