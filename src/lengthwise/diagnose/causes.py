"""Every cause that time can go to, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Words(NamedTuple):
    """A cause for people.

    Attributes:
        label: in a few words.
        meaning: exactly what it is.
    """

    label: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Seconds of a run, and what took them.

    Attributes:
        name: one of :data:`CAUSES`.
        seconds: of the run; of a difference, negative where the run was quicker than predicted.
        tokens_per_second: what that is in throughput; None where nothing is compared.
    """

    name: str
    seconds: float
    tokens_per_second: float | None = None

    @property
    def label(self) -> str:
        """In a few words."""
        return CAUSES[self.name].label

    @property
    def meaning(self) -> str:
        """In a sentence."""
        return CAUSES[self.name].meaning


CAUSES: dict[str, Words] = {
    "real_tokens": Words(
        "the target, on real tokens",
        "Seconds at work of the targets, times efficiency.",
    ),
    "learning": Words("learning", "Seconds in which the drafter learns, mean of its ranks."),
    "ahead": Words(
        "tokens run ahead",
        "The targets ran more tokens than were learnt from: those in the pool, and batches that "
        "were run again.",
    ),
    "padding": Words(
        "padding",
        "Padded tokens that are not real; in a comparison those beyond the plan's, at the "
        "calibrated seconds of a token.",
    ),
    "overhead": Words(
        "overhead of each batch",
        "The fixed seconds of a batch, times the batches beyond the plan's for as many tokens.",
    ),
    "shapes": Words(
        "shapes of the batches",
        "What the batches that ran cost by the calibrated cost, beyond the predicted, after "
        "padding and overhead.",
    ),
    "target_pace": Words(
        "pace of the target",
        "The same batches took longer than the calibrated cost says: another load on the device, "
        "clocks, or something new in the step.",
    ),
    "drafter_pace": Words(
        "pace of the drafter",
        "Learning from as many tokens took longer than predicted.",
    ),
    "imbalance": Words(
        "a device slower than the others",
        "Ranks wait in each step for the slowest: the time that the middle rank (of two, the one "
        "that waits longer) is with the others, less the least of any rank, and less checkpoints. "
        "Of target workers: time at work beyond what their tokens take at the pace of the middle "
        "one (of two, the quicker).",
    ),
    "exchange": Words(
        "exchange between ranks",
        "The least time of any rank in which ranks are together: gradients are summed, and now one "
        "and now another is the slowest.",
    ),
    "saving": Words(
        "checkpoints",
        "Between the steps of the first rank, while others wait for it: checkpoints, and drafters "
        "written for evaluation.",
    ),
    "starting": Words(
        "getting started",
        "Until a device has its first work: files are opened, and the pool fills.",
    ),
    "samples": Words("waiting for samples", "The drafter waits: its samples have not arrived."),
    "copying": Words(
        "copying samples",
        "The drafter waits: its samples have arrived and are being copied.",
    ),
    "room": Words(
        "waiting for room",
        "The targets have no batch, since the channel has no room for its features.",
    ),
    "reading": Words(
        "reading the data",
        "The targets have a batch and wait for its rows: the input is late.",
    ),
    "work": Words("waiting for work", "The targets have no batch, though there is room for one."),
    "slack": Words(
        "predicted waiting, used up",
        "The stage was predicted to wait for the other, and waited less.",
    ),
    "evaluation": Words("evaluations", "Held-out prompts are decoded; the prediction has none."),
    "ending": Words(
        "the end of the run",
        "After the last step, until all is written; of the targets also from their last batch on.",
    ),
    "unexplained": Words(
        "not explained",
        "What is left: time that no count accounts for, between records and messages.",
    ),
}
"""By name."""
