"""Predicted against measured throughput, and what the difference consists of.

A run of N real tokens was predicted to take N / predicted rate, and took its measured time. The
difference in seconds is divided among causes in a fixed order, each found from counts and the
calibrated cost, never from what is left over; what is left over has a name of its own. In tokens a
second each cause has the same share of the difference as in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.diagnose.causes import Cause
from lengthwise.diagnose.split import (
    drafter_work,
    mean_waits,
    outside,
    slowest_stage,
    target_work,
)

if TYPE_CHECKING:
    from lengthwise.diagnose.account import Account
    from lengthwise.diagnose.prediction import Promise
    from lengthwise.diagnose.split import Seconds

_BY_NATURE = {
    "target": ("starting", "room", "work", "ending", "reading"),
    "drafter": ("starting", "samples", "ending", "copying"),
}
"""In which order a stage's predicted waiting is taken off its waits."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was promised and what came.

    Attributes:
        predicted: real tokens a second.
        measured: the same.
        low: the least that was predicted, with the prediction's own probability; None: no interval.
        high: the most.
        predicted_seconds: for the tokens that were learnt from, at the predicted rate.
        measured_seconds: that they took.
        causes: of ``measured_seconds - predicted_seconds``; they add up to it, and their tokens a
            second to ``measured - predicted``.
    """

    predicted: float
    measured: float
    low: float | None
    high: float | None
    predicted_seconds: float
    measured_seconds: float
    causes: tuple[Cause, ...]

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured rate lies in the predicted interval; None without one."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


def compare(account: Account, promise: Promise) -> Comparison:
    """Divide the difference between prediction and run.

    Of a pipeline the stage that waits least for the other is accounted for, of one process target
    and drafter in turn. With N tokens learnt from, T0 = N / predicted rate, and p the share of the
    time that the stage was predicted to be at work, in this order:

    1. ``ahead``: T0 p (tokens run / N - 1); targets only.
    2. ``padding``: padded tokens beyond real ones over the planned efficiency, at the calibrated
       seconds of a padded token (of a token in a sample of the mean longest, weighted by tokens).
    3. ``overhead``: batches beyond the plan's for as many tokens, at the fixed seconds of one.
    4. ``shapes``: the calibrated cost of the batches that ran, less T0 p and 1 to 3.
    5. ``imbalance``, ``saving``: as :mod:`~lengthwise.diagnose.split` has them.
    6. ``target_pace`` or ``drafter_pace``: measured time at work, less T0 p and 1 to 5.
    7. Waits by cause, less the waiting that was predicted, T0 (1 - p), which is taken off those
       waits first that the stage has by nature; where it waited less, the rest is ``slack``.
    8. ``evaluation``, ``ending``, and ``unexplained``: all that is left.

    2 to 4 need a cost of three coefficients; without it 2 is found in proportion and 3 and 4 are
    part of the pace.
    """
    expected = account.learnt_tokens / promise.tokens_per_second
    divide = _alone if account.kind == "alone" else _pipeline
    found = {**divide(account, promise, expected), "unexplained": 0.0}
    found["unexplained"] = account.seconds - expected - sum(found.values())
    scale = promise.tokens_per_second / account.seconds
    return Comparison(
        predicted=promise.tokens_per_second,
        measured=account.tokens_per_second,
        low=promise.low,
        high=promise.high,
        predicted_seconds=expected,
        measured_seconds=account.seconds,
        causes=tuple(
            Cause(name, seconds, 0.0 - seconds * scale) for name, seconds in found.items()
        ),
    )


def _alone(account: Account, promise: Promise, expected: float) -> Seconds:
    busy = {stage: account.busy(stage) for stage in ("target", "drafter")}
    found = _target_causes(account, promise, expected * promise.target_busy)
    base = expected * promise.target_busy + sum(found.values())
    found["target_pace"] = busy["target"] - base
    found["drafter_pace"] = busy["drafter"] - expected * promise.drafter_busy
    return found | outside(account, account.seconds - sum(busy.values()))


def _pipeline(account: Account, promise: Promise, expected: float) -> Seconds:
    stage = slowest_stage(account)
    base = expected * promise.busy(stage)
    found: Seconds = {}
    if stage == "target":
        found = _target_causes(account, promise, base)
        found["imbalance"] = target_work(account)["imbalance"]
    else:
        work = drafter_work(account)
        found = {name: work[name] for name in ("imbalance", "saving")}
    found[f"{stage}_pace"] = account.busy(stage) - base - sum(found.values())
    waits = mean_waits(account.stage(stage))
    waits |= outside(account, account.seconds - account.busy(stage) - sum(waits.values()))
    return found | _less_predicted(waits, expected - base, _BY_NATURE[stage])


def _target_causes(account: Account, promise: Promise, base: float) -> Seconds:
    """``ahead``, ``padding``, ``overhead`` and ``shapes``.

    Args:
        account: of the run.
        promise: of the run.
        base: seconds that a target was predicted to be at work for the tokens learnt from.
    """
    ran, padded = account.target_tokens, account.padded_tokens
    if not ran or not account.learnt_tokens:
        return {}
    ahead = base * (ran / account.learnt_tokens - 1)
    planned = ran / (account.planned_efficiency or account.efficiency)
    cost, devices = promise.target_cost, len(account.stage("target"))
    if cost is None:
        return {"ahead": ahead, "padding": (base + ahead) * (padded / planned - 1)}
    longest = account.token_squares / padded
    per_token = cost.seconds_per_token + cost.seconds_per_token_squared * longest
    batches = account.num_batches
    planned_batches = ran / (account.planned_batch_tokens or ran / batches)
    found = {
        "ahead": ahead,
        "padding": per_token * (padded - planned) / devices,
        "overhead": cost.fixed_seconds * (batches - planned_batches) / devices,
    }
    modelled = (cost.fixed_seconds * batches + per_token * padded) / devices
    return found | {"shapes": modelled - base - sum(found.values())}


def _less_predicted(waits: Seconds, predicted: float, order: tuple[str, ...]) -> Seconds:
    """Take predicted waiting off the waits, in an order; what is left of it is ``slack``."""
    found, left = dict(waits), predicted
    for name in order:
        taken = min(max(left, 0.0), max(found.get(name, 0.0), 0.0))
        if taken:
            found[name] -= taken
            left -= taken
    unexplained = found.pop("unexplained", 0.0)
    return {**found, "slack": -left, "unexplained": unexplained}
