"""What decoding is asked for and what it returns."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.core.limits import require_int
from lengthwise.dflash.decoding.sampling import GREEDY, Sampling
from lengthwise.dflash.target.positions import rows_alone
from lengthwise.errors import ConfigError, DataError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lengthwise.dflash.target import Target

STOP = "stop"
"""A stop token came; it is the last token of the output."""
LENGTH = "length"
"""max_new_tokens was reached."""
CONTEXT = "context"
"""The target's context (max_position_embeddings) is full."""


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to decode, checked against its target.

    Attributes:
        prompt_ids: at least one token id.
        max_new_tokens: most tokens to emit.
        room: most tokens to emit that also fit the target's context.
        sampling: how tokens are chosen.
        stop_token_ids: ids that end the output; the stop token itself is emitted.
        generator: source of chance, on the target's device; needed unless greedy.
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    room: int
    sampling: Sampling = GREEDY
    stop_token_ids: frozenset[int] = frozenset()
    generator: torch.Generator | None = None


def make_request(
    target: Target,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    stop_token_ids: Iterable[int] = (),
    generator: torch.Generator | None = None,
) -> Request:
    """Check a request against its target.

    Raises:
        DataError: the prompt is empty, has an id outside the vocabulary, or fills the context.
        ConfigError: max_new_tokens below 1, or sampling without a generator on the target's device.
        ModelError: the target's rotary positions change with the length of what was run.
    """
    prompt = tuple(int(token) for token in prompt_ids)
    if not prompt:
        raise DataError("a prompt needs at least one token; this one has none")
    limit = require_int("max_new_tokens", max_new_tokens, least=1)
    target.ends.check_ids(torch.tensor(prompt), "prompt")
    context = context_limit(target.config)
    if context is not None and len(prompt) >= context:
        raise DataError(
            f"the prompt has {len(prompt):,} tokens, and the target's context holds {context:,} "
            "(max_position_embeddings), prompt and output together"
        )
    if not sampling.greedy:
        _check_generator(generator, target.device)
    room = limit if context is None else min(limit, context - len(prompt))
    total = len(prompt) + room
    if rows_alone(target.config, [len(prompt)], total):
        raise ModelError(
            f"the target's rotary positions (longrope) change between {len(prompt):,} and "
            f"{total:,} tokens, which would spoil its cache; ask for fewer new tokens"
        )
    return Request(prompt, limit, room, sampling, frozenset(stop_token_ids), generator)


def _check_generator(generator: torch.Generator | None, device: torch.device) -> None:
    if generator is None or generator.device.type != device.type:
        found = "none" if generator is None else f"one on {generator.device}"
        raise ConfigError(
            f"sampling needs a torch.Generator on the target's device, {device}; got {found}. "
            f"Make one with torch.Generator({device.type!r}).manual_seed(seed)"
        )


def seeded(target: Target, seed: int) -> torch.Generator:
    """A source of chance on the target's device."""
    return torch.Generator(target.device).manual_seed(seed)


def context_limit(config: Any) -> int | None:
    """Tokens that a model's context holds, or None where it names no limit."""
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


@dataclass(frozen=True, slots=True)
class Generation:
    """What was decoded from one prompt.

    ``sum(num_accepted) + num_verifications + 1 == len(token_ids)`` for speculative decoding: the
    first token comes from the prompt's own forward, every verification emits what it accepted and
    one more token.

    Attributes:
        token_ids: the emitted tokens, a stop token included.
        finish_reason: "stop", "length" or "context".
        num_accepted: drafted tokens that each verification accepted and emitted; empty for plain
            decoding. Where a stop token ends the output inside a run, the tokens after it do
            not count.
        num_drafted: drafted tokens that each verification looked at: block_size - 1, fewer where
            less was left to emit.
        num_forwards: forwards of the target, the prompt's included.
        num_reruns: how many of them ran accepted tokens again (targets with a state).
        prefill_seconds: until the first token.
        decode_seconds: from the first token to the last.
    """

    token_ids: tuple[int, ...]
    finish_reason: str
    num_accepted: tuple[int, ...] = ()
    num_drafted: tuple[int, ...] = ()
    num_forwards: int = 0
    num_reruns: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def num_verifications(self) -> int:
        """Blocks that the target looked at."""
        return len(self.num_accepted)

    @property
    def tokens_per_verify(self) -> float | None:
        """Mean of num_accepted + 1; None where nothing was verified."""
        if not self.num_accepted:
            return None
        return sum(self.num_accepted) / len(self.num_accepted) + 1

    @property
    def decode_tokens(self) -> int:
        """Tokens after the first, those that ``decode_seconds`` is about."""
        return len(self.token_ids) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "num_tokens": len(self.token_ids),
            "num_verifications": self.num_verifications,
            "num_accepted": list(self.num_accepted),
            "num_drafted": list(self.num_drafted),
            "tokens_per_verify": self.tokens_per_verify,
            "num_forwards": self.num_forwards,
            "num_reruns": self.num_reruns,
            "prefill_seconds": self.prefill_seconds,
            "decode_seconds": self.decode_seconds,
        }


@dataclass(slots=True)
class Output:
    """Tokens emitted so far, and whether more may come."""

    request: Request
    on_tokens: Callable[[Sequence[int]], None] | None = None
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""

    @property
    def room(self) -> int:
        """Tokens that may still be emitted."""
        return self.request.room - len(self.token_ids)

    def take(self, run: Sequence[int]) -> int:
        """Emit a run up to a stop token or the limit; how many tokens were taken."""
        taken = list(run[: self.room])
        stops = self.request.stop_token_ids
        stop = next((place for place, token in enumerate(taken) if token in stops), None)
        if stop is not None:
            taken = taken[: stop + 1]
            self.finish_reason = STOP
        self.token_ids += taken
        if not self.finish_reason and not self.room:
            full = len(self.token_ids) < self.request.max_new_tokens
            self.finish_reason = CONTEXT if full else LENGTH
        if self.on_tokens is not None:
            self.on_tokens(taken)
        return len(taken)


def seconds_now(device: torch.device) -> float:
    """The clock, after all work on a CUDA device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
