"""Speculative decoding: the drafter offers a block, the target looks at it in one forward.

The loop of DFlash (arXiv 2602.06036) and of speculative sampling (arXiv 2211.17192): the output is
the target's own, token for token when greedy and in distribution when sampled.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.decoding.generation import (
    Generation,
    Output,
    Request,
    make_request,
    seconds_now,
)
from lengthwise.dflash.decoding.proposer import DrafterProposer, Proposal, check_fit
from lengthwise.dflash.decoding.rewinding import check_rewinding
from lengthwise.dflash.decoding.sampling import Sampling, choose, verify_greedy, verify_sampled
from lengthwise.dflash.decoding.target_cache import TargetCache
from lengthwise.dflash.drafter import Drafter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lengthwise.dflash.decoding.proposer import Proposer
    from lengthwise.dflash.target import Target


@torch.no_grad()
def speculate(
    target: Target,
    drafter: Drafter | Proposer,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    stop_token_ids: Iterable[int] = (),
    generator: torch.Generator | None = None,
    on_tokens: Callable[[Sequence[int]], None] | None = None,
) -> Generation:
    """Decode with the target, sped up by a drafter.

    Args:
        target: the target, whose output this is.
        drafter: a drafter, or anything that offers tokens.
        prompt_ids: token ids of the prompt, at least one.
        max_new_tokens: most tokens to emit; kept to exactly.
        temperature: 0 is greedy; else target and drafter both draw at this temperature.
        top_k: draw from the k likeliest tokens only.
        top_p: draw from the likeliest tokens that together reach this probability.
        stop_token_ids: ids that end the output, which includes the stop token.
        generator: source of chance on the target's device; needed unless greedy.
        on_tokens: called with the tokens of each verification as they come.

    Raises:
        DataError: the prompt is empty, outside the vocabulary, or fills the target's context.
        ConfigError: a setting outside its range.
        ModelError: the drafter does not fit the target, or the target's cache cannot take back
            tokens, so that the output would change.
    """
    request = make_request(
        target,
        prompt_ids,
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature, top_k, top_p),
        stop_token_ids=stop_token_ids,
        generator=generator,
    )
    proposer = DrafterProposer(drafter, target.ends) if isinstance(drafter, Drafter) else drafter
    check_fit(proposer, target)
    check_rewinding(target)
    layer_ids = proposer.layer_ids
    with target.capture(layer_ids) if layer_ids else nullcontext() as taps:
        loop = _Loop(target, proposer, TargetCache(target, taps), Output(request, on_tokens))
        return loop.run()


class _Loop:
    """One sequence: prompt, then blocks until the output is finished."""

    def __init__(
        self, target: Target, proposer: Proposer, cache: TargetCache, output: Output
    ) -> None:
        self._target = target
        self._proposer = proposer
        self._cache = cache
        self._output = output
        self._num_accepted: list[int] = []
        self._num_drafted: list[int] = []

    @property
    def _request(self) -> Request:
        return self._output.request

    def run(self) -> Generation:
        device, output = self._target.device, self._output
        started = seconds_now(device)
        bonus, features = self._prefill()
        first = seconds_now(device)
        if not output.finish_reason:
            self._proposer.begin()
            self._proposer.observe(self._request.prompt_ids, features)
        while not output.finish_reason:
            bonus = self._round(bonus)
        return Generation(
            token_ids=tuple(output.token_ids),
            finish_reason=output.finish_reason,
            num_accepted=tuple(self._num_accepted),
            num_drafted=tuple(self._num_drafted),
            num_forwards=self._cache.num_forwards,
            num_reruns=self._cache.num_reruns,
            prefill_seconds=first - started,
            decode_seconds=seconds_now(device) - first,
        )

    def _prefill(self) -> tuple[int, torch.Tensor | None]:
        request = self._request
        prompt = torch.tensor(request.prompt_ids, device=self._target.device)
        logits, features = self._cache.extend(prompt, last_only=True)
        (bonus,) = choose(logits, request.sampling, request.generator).tolist()
        self._output.take([bonus])
        return bonus, features

    def _round(self, bonus: int) -> int:
        """Draft, verify, emit, and bring both caches to what was accepted; the next bonus token."""
        # A verification emits at most one token more than it was offered, so no more is drafted
        # than there is room for.
        count = min(self._proposer.block_size, self._output.room) - 1
        proposal = self._propose(bonus, count)
        block = torch.cat([torch.tensor([bonus], device=self._target.device), proposal.token_ids])
        logits, features = self._cache.extend(block, revocable=True)
        run = self._verify(logits, proposal)
        taken = self._output.take(run)
        self._num_accepted.append(taken - 1)
        self._num_drafted.append(proposal.token_ids.shape[0])
        if not self._output.finish_reason:
            self._cache.keep(len(run))
            final = features if features is None else features[:, : len(run)]
            self._proposer.observe([bonus, *run[:-1]], final)
        return run[-1]

    def _propose(self, bonus: int, count: int) -> Proposal:
        request, device = self._request, self._target.device
        if count == 0:
            return Proposal(torch.empty(0, dtype=torch.long, device=device))
        proposal = self._proposer.propose(bonus, count, request.sampling, request.generator)
        assert proposal.token_ids.shape[0] <= count
        return Proposal(proposal.token_ids.to(device), proposal.probabilities)

    def _verify(self, logits: torch.Tensor, proposal: Proposal) -> list[int]:
        request = self._request
        if request.sampling.greedy:
            return verify_greedy(logits, proposal.token_ids)
        return verify_sampled(logits, proposal, request.sampling, request.generator)
