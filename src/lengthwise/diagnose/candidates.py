"""Everything that could be changed about a run's speed, each with what it would bring.

Each takes some seconds off the account of the slowest stage. The other stage bounds what that
brings: a pipeline is never quicker than its other stage at work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.core.wording import percent
from lengthwise.diagnose.advice import USUAL_EFFICIENCY, Advice
from lengthwise.diagnose.split import (
    drafter_work,
    mean_waits,
    outside,
    slowest_stage,
    split_time,
    target_work,
)
from lengthwise.simulate.bottleneck import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.diagnose.account import Account, Device
    from lengthwise.diagnose.comparison import Comparison

_PAUSES = {"starting", "saving", "evaluation", "ending", "unexplained"}
SLOW_PACE = 0.1
"""Of the run's time, from which a pace below the calibrated is a fault."""


class Candidates:
    """Everything that could be changed about a run's speed.

    Args:
        account: of the run.
        best_efficiency: that another plan would have; None: not known.
        comparison: with the prediction; None without one.
        what_if: tokens a second with other numbers of targets and drafters, over those of now,
            less 1; or None where it cannot say.
    """

    def __init__(
        self,
        account: Account,
        best_efficiency: float | None,
        comparison: Comparison | None,
        what_if: Callable[[tuple[int, int]], float | None],
    ) -> None:
        """Find the slowest stage and what bounds it."""
        self._account = account
        self._best = best_efficiency
        self._comparison = comparison
        self._what_if = what_if
        self._alone = account.kind == "alone"
        self._stage = "target" if self._alone else slowest_stage(account)
        self._other = "drafter" if self._stage == "target" else "target"
        self._waits = {} if self._alone else mean_waits(account.stage(self._stage))

    def all(self) -> list[Advice]:
        """Those that bring anything at all."""
        found = [
            *self._padding(),
            *self._slow_device(),
            *self._waiting(),
            *self._pauses(),
            *self._pace(),
            *(self._second_device() if self._alone else self._devices()),
        ]
        return [one for one in found if one.gain > 0]

    def _gain(self, seconds: float, floor: float | None = None) -> float:
        """Of ``seconds`` less, where the run takes at least ``floor``: the other stage's work."""
        bound = floor
        if bound is None:
            bound = 0.0 if self._alone else self._account.busy(self._other)
        left = max(self._account.seconds - seconds, bound)
        return self._account.seconds / left - 1 if left > 0 else 0.0

    def _padding(self) -> Iterator[Advice]:
        best = USUAL_EFFICIENCY if self._best is None else self._best
        now = self._account.efficiency
        if self._stage != "target" or now >= best:
            return
        work = self._account.busy("target")
        work = work if self._alone else target_work(self._account)["work"]
        yield Advice(
            "padding",
            "leave batching.strategy, boundaries and num_buckets at their defaults, or find better "
            "boundaries with `lengthwise optimize`",
            self._gain(work * (1 - now / best)),
            f"{percent(1 - now)} of the tokens that the target runs are padding; "
            f"{percent(1 - best)} would be enough.",
        )

    def _slow_device(self) -> Iterator[Advice]:
        if self._alone:
            return
        devices = self._account.stage(self._stage)
        work = target_work if self._stage == "target" else drafter_work
        seconds = work(self._account)["imbalance"]
        slow = _slowest(devices)
        why = (
            "the others wait for it in every step"
            if self._stage == "drafter"
            else "its batches take longer than the other workers' of as many tokens"
        )
        yield Advice(
            "slow_device",
            f"look at {slow.name}: what else runs on its device, its clocks, its cooling",
            self._gain(seconds),
            f"{slow.name} is slower than the others: {why}, which costs "
            f"{percent(seconds / self._account.seconds)} of the time.",
        )

    def _waiting(self) -> Iterator[Advice]:
        for cause, (kind, reason) in _WAITS.items():
            seconds = self._waits.get(cause, 0.0)
            share = percent(seconds / self._account.seconds)
            _, change = words_of(kind)
            yield Advice(kind, change, self._gain(seconds), reason.format(share))

    def _pauses(self) -> Iterator[Advice]:
        """Checkpoints and evaluations, of which half could be had less often."""
        account = self._account
        inside = account.busy("target") + account.busy("drafter")
        if not self._alone:
            inside = account.busy(self._stage) + sum(self._waits.values())
        found = outside(account, account.seconds - inside)
        saving = 0.0
        if self._stage == "drafter" and not self._alone:
            saving = drafter_work(account)["saving"]
        for kind, seconds, field in (
            ("checkpoints", saving, "checkpoint.every_steps"),
            ("evaluations", found["evaluation"], "evaluation.every_steps"),
        ):
            yield Advice(
                kind,
                f"double {field}",
                self._gain(seconds / 2),
                f"{kind} take {percent(seconds / account.seconds)} of the time.",
            )

    def _pace(self) -> Iterator[Advice]:
        found = self._comparison
        if found is None or found.is_inside or found.measured > found.predicted:
            return
        for cause in found.causes:
            stage, _, what = cause.name.partition("_")
            if what == "pace" and cause.seconds > SLOW_PACE * found.measured_seconds:
                yield Advice(
                    cause.name,
                    f"look for what slows the {stage}'s devices: another load, clocks, a change of "
                    f"code since the prediction",
                    self._gain(cause.seconds),
                    f"the {stage} takes {percent(cause.seconds / found.measured_seconds)} of the "
                    f"time more than the same work took before the run.",
                )

    def _second_device(self) -> Iterator[Advice]:
        account = self._account
        target, drafter = account.busy("target"), account.busy("drafter")
        yield Advice(
            "one_device",
            "give the drafter a device of its own: pipeline.target_devices and drafter_devices",
            self._gain(min(target, drafter), max(target, drafter)),
            "target and drafter take turns; on two devices they work at the same time.",
            needs_device=True,
        )

    def _devices(self) -> Iterator[Advice]:
        """One device more for the slowest stage, or one from the other stage."""
        account, stage, other = self._account, self._stage, self._other
        own, theirs = len(account.stage(stage)), len(account.stage(other))
        busy, lent = account.busy(stage), account.busy(other)
        saved = busy / (own + 1)
        words = {"target": "targets", "drafter": "drafter"}
        because = (
            f"the {words[stage]} {'are' if stage == 'target' else 'is'} at work "
            f"{percent(busy / account.seconds, 0)} of the time, the {words[other]} "
            f"{percent(lent / account.seconds, 0)}."
        )
        more, moved = self._splits(own, theirs)
        gain = self._what_if(more)
        yield Advice(
            words[stage],
            f"give pipeline.{stage}_devices one device more",
            self._gain(saved) if gain is None else self._of_all(gain),
            because,
            needs_device=True,
        )
        if theirs > 1:
            gain = self._what_if(moved)
            yield Advice(
                words[stage],
                f"move a device from pipeline.{other}_devices to pipeline.{stage}_devices",
                self._gain(saved, lent * theirs / (theirs - 1))
                if gain is None
                else self._of_all(gain),
                because,
            )

    def _of_all(self, gain: float) -> float:
        """Of the whole run what a simulation gains, in which nothing starts, is saved or ends."""
        fixed = sum(one.seconds for one in split_time(self._account) if one.name in _PAUSES)
        left = fixed + (self._account.seconds - fixed) / (1 + gain)
        return self._account.seconds / left - 1

    def _splits(self, own: int, theirs: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Targets and drafters with one device more here, and with one moved here."""
        more, moved = (own + 1, theirs), (own + 1, theirs - 1)
        return (more, moved) if self._stage == "target" else (more[::-1], moved[::-1])


def _slowest(devices: list[Device]) -> Device:
    """The rank that waits least for the others, or the worker with most seconds a token."""
    if devices[0].key.startswith("drafter"):
        return min(devices, key=lambda one: one.meeting)
    ran = [one for one in devices if one.padded_tokens] or devices
    return max(ran, key=lambda one: one.busy / max(1, one.padded_tokens))


_WAITS = {
    "reading": (
        "reading",
        "the targets have their batches and wait {} of the time for the rows: the input is late.",
    ),
    "copying": (
        "copying",
        "the drafter waits {} of the time for samples that have arrived to be copied.",
    ),
    "room": (
        "channel",
        "the targets wait {} of the time for room in the channel, and are as busy as the drafter.",
    ),
    "work": (
        "dispatching",
        "the targets wait {} of the time for a batch though there is room for one.",
    ),
}
"""Wait of a stage -> the bottleneck that it shows, and the reason with the share of the time."""
