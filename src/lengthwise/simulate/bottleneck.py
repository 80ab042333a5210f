"""Which part of a pipeline the others wait for, in words, by rule.

Two things tell it: where work piles up, and who is busy. Batches pile up before the targets
(``prefetch``) and steps before the drafter (``hidden_states``), and pages of the arena fill up when
the drafter does not empty them. A pile before a stage that is busy is a stage that is too slow; a
pile before one that waits is something between the two; no pile and all waiting is a channel that
is too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "balanced", "targets", "drafter", "reading", "copying", "channel", "dispatching"
]

BUSY = 0.7
"""Share of the time at work from which a stage counts as busy."""
BOTH_BUSY = 0.85
"""The same where both are: then neither waits for the other."""
FULL_PREFETCH = 0.75
FULL_PAGES = 0.95
READY_STEPS = 0.5
"""Mean steps that are ready and wait for a rank, from which there is a pile."""


@dataclass(frozen=True, slots=True)
class Load:
    """How a pipeline was loaded over a while; means over it.

    Attributes:
        prefetch: batches that targets have, as a share of the most they can have.
        hidden_states: steps that are ready and that no rank has yet.
        pages: of the arena in use, as a share of what may be in use before the next batch finds no
            room.
        target_busy: share of the time at work, mean of the target workers; None while unknown.
        drafter_busy: the same of the drafter's ranks.
        starting: models load, the pool fills for the first time, or the last batches are through:
            nothing can be said.
    """

    prefetch: float
    hidden_states: float
    pages: float
    target_busy: float | None
    drafter_busy: float | None
    starting: bool = False


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What holds a pipeline up.

    Attributes:
        kind: in one word.
        finding: in a sentence.
        advice: the one change to try first.
    """

    kind: Kind
    finding: str
    advice: str

    @property
    def sentence(self) -> str:
        """Both."""
        return f"{self.finding}: {self.advice}."


_WORDS: dict[Kind, tuple[str, str]] = {
    "balanced": (
        "targets and drafter are both busy",
        "they are balanced, only more devices of both kinds, or faster ones, help",
    ),
    "targets": (
        "the targets are the bottleneck, the drafter waits for hidden states",
        "give pipeline.target_devices one device more",
    ),
    "drafter": (
        "the drafter is the bottleneck, hidden states wait for it",
        "give pipeline.drafter_devices one device more",
    ),
    "reading": (
        "reading the data is the bottleneck, targets have batches and wait for their samples",
        "put the prepared data on a faster disk",
    ),
    "copying": (
        "handing over is the bottleneck, steps are ready and the drafter waits for their samples",
        "put the prepared data, from which ranks read tokens and masks, on a faster disk",
    ),
    "channel": (
        "the channel is too small, targets wait for room and the drafter for samples",
        "raise pipeline.prefetch_batches",
    ),
    "dispatching": (
        "giving out work is the bottleneck, targets and drafter wait and there is room",
        "raise batching.max_tokens, so that there are fewer and larger batches",
    ),
}


def words_of(kind: str) -> tuple[str, str]:
    """What a word means: the finding, and the one change to try first. Unknown words are their own.

    Args:
        kind: in one word, as a run wrote it down.
    """
    return next((words for known, words in _WORDS.items() if known == kind), (kind, ""))


def find_bottleneck(load: Load) -> Bottleneck | None:
    """Name what holds a pipeline up; None while nothing can be said.

    In this order, where a stage is busy from 70 % of its time on:

    1. Both are at work 85 % of the time: balanced.
    2. Steps are ready and wait (half a step on average): the drafter, or, if it is not busy,
       copying their samples.
    3. One of the two is busy: that one. Both: the busier.
    4. The targets have all the batches they can have and are not busy: reading the data.
    5. The arena has no room: the channel.
    6. Else: giving out work.
    """
    targets, drafter = load.target_busy, load.drafter_busy
    if load.starting or targets is None or drafter is None:
        return None
    kind = _kind(load, targets, drafter)
    return Bottleneck(kind, *_WORDS[kind])


def _kind(load: Load, targets: float, drafter: float) -> Kind:
    if min(targets, drafter) >= BOTH_BUSY:
        return "balanced"
    if load.hidden_states >= READY_STEPS:
        return "drafter" if drafter >= BUSY else "copying"
    if max(targets, drafter) >= BUSY:
        return "targets" if targets >= drafter else "drafter"
    if load.prefetch >= FULL_PREFETCH:
        return "reading"
    return "channel" if load.pages >= FULL_PAGES else "dispatching"
