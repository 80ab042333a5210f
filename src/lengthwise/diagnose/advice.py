"""One change to make, with what it would bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from lengthwise.diagnose.loss import Jumpiness

LEAST_GAIN = 0.02
"""In tokens a second; less is not worth a change."""
WORTH_FIRST = 0.05
"""A change that needs no further device comes first if it brings this much."""
USUAL_EFFICIENCY = 0.98
"""Of the default plan, where the run's own plan is not there to be compared."""
JUMPY_SHARE = 0.3
"""Of the loss's mean square that lengths explain, from which mixing better is worth it."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change.

    Attributes:
        kind: the fault that it answers, in a word: ``targets``, ``drafter``, ``slow_device``,
            ``padding``, ``reading``, ``copying``, ``channel``, ``dispatching``, ``checkpoints``,
            ``evaluations``, ``target_pace``, ``drafter_pace``, ``one_device``, ``mixing`` or
            ``nothing``.
        change: what to do.
        gain: tokens a second over those of now, less 1; of ``mixing`` the share of the loss's mean
            square that goes away.
        reason: why, in one sentence.
        needs_device: whether it takes a device that is not there yet.
    """

    kind: str
    change: str
    gain: float
    reason: str
    needs_device: bool = False

    @property
    def expectation(self) -> str:
        """The gain in words."""
        if self.kind == "nothing":
            return "nothing"
        if self.kind == "mixing":
            return f"{percent(self.gain, 0)} less variance of the step loss"
        return f"{percent(self.gain, 0)} more tokens a second"


NOTHING = Advice(
    "nothing",
    "leave it as it is",
    0.0,
    f"no single change that is known here would bring {percent(LEAST_GAIN, 0)} more.",
)


def choose(candidates: list[Advice]) -> Advice:
    """The one to recommend.

    Of those that need no further device the one with most gain, if that is 5 % or more; else of
    all the one with most gain, if that is 2 % or more; else nothing.
    """
    at_hand = [one for one in candidates if not one.needs_device and one.gain >= WORTH_FIRST]
    worth = at_hand or [one for one in candidates if one.gain >= LEAST_GAIN]
    return max(worth, key=lambda one: one.gain, default=NOTHING)


def mixing(jumps: Jumpiness | None) -> Advice | None:
    """A wider pool, where lengths make much of the loss's jumps."""
    if jumps is None or jumps.share_between < JUMPY_SHARE:
        return None
    share = jumps.share_between
    return Advice(
        "mixing",
        "mix lengths better: a wider pool (remix.pool_batches), or order='balanced' where steps "
        "take whole batches",
        share,
        f"{percent(share, 0)} of the step loss's variance around its level is the mixture of "
        f"lengths, which differs from step to step.",
    )
