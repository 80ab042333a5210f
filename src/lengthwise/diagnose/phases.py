"""What held a run up, in words, by time of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.core.wording import duration, percent
from lengthwise.diagnose.records import figure, lives
from lengthwise.diagnose.split import busy_share
from lengthwise.simulate.bottleneck import Load, find_bottleneck, words_of

if TYPE_CHECKING:
    from lengthwise.diagnose.account import Account
    from lengthwise.diagnose.records import Record, RunRecords
    from lengthwise.simulate.bottleneck import Bottleneck

LEAST_SHARE = 0.05
"""Of the run's time; a shorter phase is part of the one before it, or of the one after."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A while in which the same thing held the run up.

    Attributes:
        begin: seconds since the run began, over all its lives.
        end: the same.
        kind: a word of :mod:`lengthwise.simulate.bottleneck`, ``"starting"`` while nothing was
            learnt from, ``"ending"`` when the last batches were through, ``"unknown"``.
    """

    begin: float
    end: float
    kind: str

    @property
    def finding(self) -> str:
        """What it was, in words."""
        if self.kind == "starting":
            return "the pool fills for the first time"
        if self.kind == "ending":
            return "the last batches are through"
        if self.kind == "unknown":
            return "too short to say"
        return words_of(self.kind)[0]

    @property
    def sentence(self) -> str:
        """When, and what it was."""
        return f"{duration(self.begin)} to {duration(self.end)}: {self.finding}"


def phases_of(records: RunRecords, overall: str | None = None) -> tuple[Phase, ...]:
    """The bottleneck over a pipeline's time; empty where no records tell how it flowed.

    As the run itself named it, from the half minute before each record. Where a record names none,
    the run was filling its pool (nothing had been learnt from), was at its end (targets ran no
    batch any more), or had just begun: then what comes next counts.

    Args:
        records: of the run.
        overall: its bottleneck over all the time, for a run too short to have named any.
    """
    found: list[Phase] = []
    shift = 0.0
    for life in lives(records.flows, ("flow_seconds",)):
        before = 0.0
        own: list[Phase] = []
        for record, kind in zip(life, _kinds(life, overall), strict=True):
            now = figure(record, "flow_seconds") or 0.0
            own.append(Phase(shift + before, shift + now, kind))
            before = now
        found += own
        shift += before
    return _without_short(_merged(found))


def overall_bottleneck(account: Account) -> Bottleneck | None:
    """What held a pipeline up over all its time; None for one process, or where nothing is known.

    By the same rule as while it runs, from means over the time between the first step and the
    targets' last batch.
    """
    load = account.load
    if account.kind != "pipeline" or not load:
        return None
    return find_bottleneck(
        Load(
            prefetch=load["prefetch"],
            hidden_states=load["hidden_states"],
            pages=load["pages"],
            target_busy=busy_share(account, "target"),
            drafter_busy=busy_share(account, "drafter"),
        )
    )


def in_turn(account: Account) -> str:
    """How one process divides its time, in a sentence."""
    target, drafter = account.busy("target"), account.busy("drafter")
    share = target / (target + drafter) if target + drafter else 0.0
    return (
        f"target and drafter take turns on one device: the target has {percent(share, 0)} of their "
        f"time, the drafter {percent(1 - share, 0)}"
    )


def _kinds(life: list[Record], overall: str | None) -> list[str]:
    """A word for every record of a life."""
    last = figure(life[-1], "flow_real_tokens")
    words: list[str | None] = []
    for place, record in enumerate(life):
        word = record.get("flow_bottleneck")
        if isinstance(word, str):
            words.append(word)
        elif not figure(record, "flow_learnt_tokens"):
            words.append("starting")
        elif place and figure(life[place - 1], "flow_real_tokens") == last:
            words.append("ending")
        else:
            words.append(None)
    named = [word for word in words if word not in {None, "starting", "ending"}]
    known = named[-1] if named else overall
    found: list[str] = []
    for word in reversed(words):
        if word not in {None, "starting", "ending"}:
            known = word
        found.append(word or known or "unknown")
    return found[::-1]


def _merged(phases: list[Phase]) -> list[Phase]:
    found: list[Phase] = []
    for phase in phases:
        if found and found[-1].kind == phase.kind:
            found[-1] = Phase(found[-1].begin, phase.end, phase.kind)
        else:
            found.append(phase)
    return found


def _without_short(phases: list[Phase]) -> tuple[Phase, ...]:
    """Give the shortest phase to a neighbour until none is too short."""
    found = list(phases)
    while len(found) > 1:
        total = found[-1].end - found[0].begin
        place = min(range(len(found)), key=lambda one: found[one].end - found[one].begin)
        short = found[place]
        if short.end - short.begin >= LEAST_SHARE * total:
            break
        if place:
            found[place - 1] = Phase(found[place - 1].begin, short.end, found[place - 1].kind)
        else:
            found[1] = Phase(short.begin, found[1].end, found[1].kind)
        del found[place]
        found = _merged(found)
    return tuple(found)
