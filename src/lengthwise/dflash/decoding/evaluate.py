"""Evaluate a drafter on prompts: acceptance, speed and mismatches, task by task."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.dflash.decoding.evaluation import Evaluation, Mismatch, Pair, TaskEvaluation
from lengthwise.dflash.decoding.generation import seeded
from lengthwise.dflash.decoding.plain import generate
from lengthwise.dflash.decoding.proposer import DrafterProposer
from lengthwise.dflash.decoding.speculate import speculate
from lengthwise.dflash.decoding.target_cache import TargetCache
from lengthwise.dflash.drafter import Drafter
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lengthwise.dflash.decoding.generation import Generation
    from lengthwise.dflash.decoding.proposer import Proposer
    from lengthwise.dflash.target import Target

ALL = "all"
"""Name of the task of prompts that come without one."""
_WARM_UP_TOKENS = 4


def evaluate(
    target: Target,
    drafter: Drafter | Proposer,
    prompts: Mapping[str, Sequence[Sequence[int]]] | Sequence[Sequence[int]],
    *,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    stop_token_ids: Iterable[int] = (),
    seed: int = 0,
    compare: bool = True,
    max_seconds: float | None = None,
    on_prompt: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Decode prompts with the drafter and, to compare, without.

    Both ways run prompt by prompt in turn, each first every other time, so that a machine that
    slows down does so for both. Tasks take turns as well, so that each is covered where time ends.

    Args:
        target: the target.
        drafter: the drafter, or anything that offers tokens.
        prompts: token ids by task, or one list of prompts.
        max_new_tokens: most tokens to emit for each prompt.
        temperature: 0 is greedy; else tokens are drawn, and there are no mismatches to count.
        stop_token_ids: ids that end an output.
        seed: of the draws; prompt number i draws from seed + i.
        compare: decode without the drafter too: speed-up and mismatches.
        max_seconds: begin no further prompt after this time; at least one prompt is decoded.
        on_prompt: called as ``on_prompt(done, given)`` after each prompt.

    Raises:
        DataError: no prompts, or a prompt that cannot be decoded.
        ModelError: the drafter does not fit the target.
    """
    tasks = dict(prompts) if isinstance(prompts, Mapping) else {ALL: prompts}
    jobs = list(_in_turn(tasks))
    if not jobs:
        raise DataError("there are no prompts to evaluate on")
    proposer = DrafterProposer(drafter, target.ends) if isinstance(drafter, Drafter) else drafter
    run = _Run(
        target, proposer, max_new_tokens, temperature, frozenset(stop_token_ids), seed, compare
    )
    started = time.perf_counter()
    if compare:
        run.warm_up(jobs[0].prompt_ids)
    found: dict[str, list[Pair]] = {task: [] for task in tasks}
    for done, job in enumerate(jobs, 1):
        found[job.task].append(run.pair(job, done))
        if on_prompt is not None:
            on_prompt(done, len(jobs))
        if max_seconds is not None and time.perf_counter() - started >= max_seconds:
            break
    size, greedy = proposer.block_size, temperature == 0
    every = tuple(pair for pairs in found.values() for pair in pairs)
    return Evaluation(
        tasks=tuple(
            TaskEvaluation(task, size, tuple(pairs), greedy) for task, pairs in found.items()
        ),
        overall=TaskEvaluation(ALL, size, every, greedy),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        num_given=len(jobs),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    task: str
    prompt: int
    prompt_ids: Sequence[int]


def _in_turn(tasks: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[_Job]:
    """The first prompt of each task, then the second of each, and so on."""
    for prompt in range(max((len(prompts) for prompts in tasks.values()), default=0)):
        for task, prompts in tasks.items():
            if prompt < len(prompts):
                yield _Job(task, prompt, prompts[prompt])


@dataclass(frozen=True, slots=True)
class _Run:
    target: Target
    proposer: Proposer
    max_new_tokens: int
    temperature: float
    stop_token_ids: frozenset[int]
    seed: int
    compare: bool

    def warm_up(self, prompt_ids: Sequence[int]) -> None:
        """Decode a few tokens both ways, so that neither pays for what happens only once."""
        tokens = min(_WARM_UP_TOKENS, self.max_new_tokens)
        generate(self.target, prompt_ids, max_new_tokens=tokens)
        speculate(self.target, self.proposer, prompt_ids, max_new_tokens=tokens)

    def pair(self, job: _Job, number: int) -> Pair:
        """Decode one prompt both ways; number decides which comes first."""
        if not self.compare:
            return Pair(self._drafted(job, number))
        if number % 2:
            plain, drafted = self._plain(job, number), self._drafted(job, number)
        else:
            drafted, plain = self._drafted(job, number), self._plain(job, number)
        mismatch = None if self.temperature else self._mismatch(job, plain, drafted)
        return Pair(drafted, plain, mismatch)

    def _plain(self, job: _Job, number: int) -> Generation:
        return generate(self.target, job.prompt_ids, **self._settings(number))

    def _drafted(self, job: _Job, number: int) -> Generation:
        return speculate(self.target, self.proposer, job.prompt_ids, **self._settings(number))

    def _settings(self, number: int) -> dict[str, Any]:
        generator = seeded(self.target, self.seed + number - 1) if self.temperature else None
        return {
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "stop_token_ids": self.stop_token_ids,
            "generator": generator,
        }

    def _mismatch(self, job: _Job, plain: Generation, drafted: Generation) -> Mismatch | None:
        ours, theirs = drafted.token_ids, plain.token_ids
        if ours == theirs:
            return None
        pairs = enumerate(zip(ours, theirs, strict=False))
        shorter = min(len(ours), len(theirs))
        place = next((i for i, (one, other) in pairs if one != other), shorter)
        one = ours[place] if place < len(ours) else None
        other = theirs[place] if place < len(theirs) else None
        gap = None
        if one is not None and other is not None:
            gap = self._gap([*job.prompt_ids, *theirs[:place]], other, one)
        return Mismatch(job.task, job.prompt, place, other, one, gap)

    @torch.no_grad()
    def _gap(self, text: Sequence[int], token: int, other: int) -> float:
        tokens = torch.tensor(text, device=self.target.device)
        logits, _ = TargetCache(self.target).extend(tokens, last_only=True)
        return float(logits[0, token] - logits[0, other])
