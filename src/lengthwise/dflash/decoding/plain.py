"""Plain decoding of the target, a token a forward: what drafting is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.decoding.generation import Generation, Output, make_request, seconds_now
from lengthwise.dflash.decoding.sampling import Sampling, choose
from lengthwise.dflash.decoding.target_cache import TargetCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lengthwise.dflash.target import Target


@torch.no_grad()
def generate(
    target: Target,
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
    """Decode with the target alone.

    Args:
        target: the target.
        prompt_ids: token ids of the prompt, at least one.
        max_new_tokens: most tokens to emit.
        temperature: 0 is greedy; else the logits are divided by it and a token is drawn.
        top_k: draw from the k likeliest tokens only.
        top_p: draw from the likeliest tokens that together reach this probability.
        stop_token_ids: ids that end the output, which includes the stop token.
        generator: source of chance on the target's device; needed unless greedy.
        on_tokens: called with the tokens of each step as they come.

    Raises:
        DataError: the prompt is empty, outside the vocabulary, or fills the target's context.
        ConfigError: a setting outside its range.
    """
    request = make_request(
        target,
        prompt_ids,
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature, top_k, top_p),
        stop_token_ids=stop_token_ids,
        generator=generator,
    )
    output, cache = Output(request, on_tokens), TargetCache(target)
    started = seconds_now(target.device)
    prompt = torch.tensor(request.prompt_ids, device=target.device)
    logits, _ = cache.extend(prompt, last_only=True)
    token = choose(logits, request.sampling, generator)
    output.take(token.tolist())
    first = seconds_now(target.device)
    while not output.finish_reason:
        logits, _ = cache.extend(token)
        token = choose(logits, request.sampling, generator)
        output.take(token.tolist())
    return Generation(
        token_ids=tuple(output.token_ids),
        finish_reason=output.finish_reason,
        num_forwards=cache.num_forwards,
        prefill_seconds=first - started,
        decode_seconds=seconds_now(target.device) - first,
    )


def greedy(
    target: Target,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    stop_token_ids: Iterable[int] = (),
) -> Generation:
    """Decode with the target alone, always taking the largest logit."""
    return generate(
        target, prompt_ids, max_new_tokens=max_new_tokens, stop_token_ids=stop_token_ids
    )
