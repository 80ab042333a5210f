"""What an evaluation found: by task, with errors of the means, speed and mismatches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.decoding.generation import Generation


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One prompt whose drafted output differs from the target's own.

    Attributes:
        task: the prompt's task.
        prompt: which prompt of the task, from 0.
        position: first place of the output that differs, from 0.
        plain_token: what the target alone emits there; None where its output has ended.
        drafted_token: what came with drafting; None where that output has ended.
        logit_gap: by how much the target's logit of its own token is above that of the other, when
            the common text runs through it at once. Near 0: a tie, decided by rounding.
    """

    task: str
    prompt: int
    position: int
    plain_token: int | None
    drafted_token: int | None
    logit_gap: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt decoded with the drafter and, where compared, without."""

    drafted: Generation
    plain: Generation | None = None
    mismatch: Mismatch | None = None


@dataclass(frozen=True, slots=True)
class TaskEvaluation:
    """What was measured on the prompts of one task, or of all.

    Attributes:
        task: name of the task.
        block_size: of the drafter.
        pairs: one a prompt.
        greedy: whether nothing was left to chance, so that outputs must be equal.
    """

    task: str
    block_size: int
    pairs: tuple[Pair, ...]
    greedy: bool = True

    @property
    def num_prompts(self) -> int:
        """Prompts that were decoded."""
        return len(self.pairs)

    @property
    def num_tokens(self) -> int:
        """Tokens emitted with the drafter."""
        return sum(len(pair.drafted.token_ids) for pair in self.pairs)

    @property
    def num_verifications(self) -> int:
        """Blocks that the target looked at."""
        return sum(pair.drafted.num_verifications for pair in self.pairs)

    @property
    def histogram(self) -> list[int]:
        """Verifications with num_accepted = 0, 1, ..., block_size - 1."""
        counts = [0] * self.block_size
        for pair in self.pairs:
            for num_accepted in pair.drafted.num_accepted:
                counts[num_accepted] += 1
        return counts

    @property
    def num_accepted(self) -> float | None:
        """Mean drafted tokens that a verification accepts; None without verifications."""
        mean = self.tokens_per_verify
        return None if mean is None else mean - 1

    @property
    def tokens_per_verify(self) -> float | None:
        """Mean tokens that a verification emits, over all verifications; None without any."""
        if not self.num_verifications:
            return None
        return sum(pair.drafted.decode_tokens for pair in self.pairs) / self.num_verifications

    @property
    def standard_error(self) -> float | None:
        """Standard error of tokens_per_verify when prompts are drawn anew.

        Verifications of one text are alike, so the prompt is the unit: the ratio estimator's
        linearised error (Cochran, Sampling Techniques, 3rd ed., section 6.4). None below two
        prompts with verifications.
        """
        mean = self.tokens_per_verify
        counted = [pair.drafted for pair in self.pairs if pair.drafted.num_verifications]
        if mean is None or len(counted) < 2:
            return None
        rest = sum((one.decode_tokens - mean * one.num_verifications) ** 2 for one in counted)
        count = len(counted)
        return math.sqrt(rest * count / (count - 1)) / self.num_verifications

    @property
    def speedup(self) -> float | None:
        """Tokens per second of decoding with the drafter over those without; None if not compared.

        Both without the prompt's own forward. Prompts that the time ended before, and outputs of
        one token, do not count.
        """
        both = [(pair.drafted, pair.plain) for pair in self.pairs if pair.plain is not None]
        drafted = _rate([one for one, _ in both])
        plain = _rate([one for _, one in both])
        return drafted / plain if drafted and plain else None

    @property
    def num_mismatches(self) -> int | None:
        """Prompts whose output the drafter changed; None if not compared, or drawn."""
        if not self.greedy or all(pair.plain is None for pair in self.pairs):
            return None
        return len(self.mismatches)

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """Where outputs first differ, one entry for each prompt that the drafter changed."""
        return tuple(pair.mismatch for pair in self.pairs if pair.mismatch is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where there is nothing to tell."""
        drafted = [pair.drafted for pair in self.pairs]
        plain = [pair.plain for pair in self.pairs if pair.plain is not None]
        return {
            "num_prompts": self.num_prompts,
            "num_tokens": self.num_tokens,
            "num_verifications": self.num_verifications,
            "num_accepted": self.num_accepted,
            "tokens_per_verify": self.tokens_per_verify,
            "tokens_per_verify_standard_error": self.standard_error,
            "histogram": self.histogram,
            "num_forwards": sum(one.num_forwards for one in drafted),
            "num_reruns": sum(one.num_reruns for one in drafted),
            "tokens_per_second": _rate(drafted),
            "plain_tokens_per_second": _rate(plain),
            "speedup": self.speedup,
            "num_mismatches": self.num_mismatches,
            "mismatches": [_as_dict(one) for one in self.mismatches],
        }


def _rate(generations: Sequence[Generation]) -> float | None:
    seconds = sum(one.decode_seconds for one in generations)
    tokens = sum(one.decode_tokens for one in generations)
    return tokens / seconds if tokens and seconds > 0 else None


def _as_dict(mismatch: Mismatch) -> dict[str, Any]:
    return {name: getattr(mismatch, name) for name in Mismatch.__slots__}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a drafter gains on prompts that it has not seen.

    Attributes:
        tasks: one entry a task, in the order of the prompts.
        overall: all prompts together.
        max_new_tokens: tokens asked for of each prompt.
        temperature: 0 is greedy.
        num_given: prompts that were given.
        seconds: wall time.
    """

    tasks: tuple[TaskEvaluation, ...]
    overall: TaskEvaluation
    max_new_tokens: int
    temperature: float
    num_given: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every prompt was decoded before the time was over."""
        return self.overall.num_prompts == self.num_given

    @property
    def tokens_per_verify(self) -> float | None:
        """Over all prompts."""
        return self.overall.tokens_per_verify

    @property
    def num_mismatches(self) -> int | None:
        """Prompts whose output the drafter changed; None if not compared, or drawn."""
        return self.overall.num_mismatches

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "block_size": self.overall.block_size,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "num_given": self.num_given,
            "complete": self.complete,
            "seconds": self.seconds,
            **self.overall.to_dict(),
            "tasks": {task.task: task.to_dict() for task in self.tasks},
        }
