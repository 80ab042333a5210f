"""The whole time of a run, or of its slowest stage, split into causes that add up to it.

A pipeline's stages work at the same time, so one stage's account is the run's: the one that waits
least for the other. Means over its devices are taken. One process has one account, of target and
drafter in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.diagnose.causes import Cause

if TYPE_CHECKING:
    from lengthwise.diagnose.account import Account, Device

Seconds = dict[str, float]

_FOR_THE_OTHER = {"target": "room", "drafter": "samples"}


def split_time(account: Account) -> tuple[Cause, ...]:
    """Causes of all of ``account.seconds``, in a fixed order; they add up to it.

    What is at work comes first, then what slows it down, then waits by cause, then evaluations and
    the end, then what is not explained: the rest, which may be negative where clocks of processes
    overlap. See :data:`~lengthwise.diagnose.causes.CAUSES` for each.
    """
    if account.kind == "alone":
        target, drafter = account.stage("target")[0].busy, account.stage("drafter")[0].busy
        efficiency = account.efficiency
        found = {
            "real_tokens": target * efficiency,
            "padding": target * (1 - efficiency),
            "learning": drafter,
        }
    elif slowest_stage(account) == "target":
        found = target_work(account)
        work = found.pop("work")
        efficiency = account.efficiency
        found = {
            "real_tokens": work * efficiency,
            "padding": work * (1 - efficiency),
            **found,
            **mean_waits(account.stage("target")),
        }
    else:
        found = drafter_work(account)
        found = {"learning": found.pop("work"), **found, **mean_waits(account.stage("drafter"))}
    found |= outside(account, account.seconds - sum(found.values()))
    return tuple(Cause(name, seconds) for name, seconds in found.items())


def slowest_stage(account: Account) -> str:
    """The stage of a pipeline that waits least for the other: ``"target"`` or ``"drafter"``.

    Targets wait for the drafter where the channel has no room, the drafter for the targets where
    its samples have not arrived. What else a stage waits for is its own affair. If both wait
    equally long, in whole percents of the time, it is the busier.
    """

    def rank(stage: str) -> tuple[float, float]:
        wait = mean_waits(account.stage(stage)).get(_FOR_THE_OTHER[stage], 0.0)
        return round(wait / account.seconds, 2), -busy_share(account, stage)

    return min(("target", "drafter"), key=rank)


def busy_share(account: Account, stage: str) -> float:
    """Share of the time at work, mean of a stage's devices, without getting started."""
    shares = []
    for device in account.stage(stage):
        both = device.busy + device.waited - device.waits.get("starting", 0.0)
        shares.append(device.busy / both if both else 0.0)
    return sum(shares) / len(shares) if shares else 0.0


def target_work(account: Account) -> Seconds:
    """``work`` and ``imbalance`` of the targets; they add up to their mean time at work.

    A worker is slow by what it took beyond its padded tokens at the pace of the middle worker, of
    two that of the quicker.
    """
    devices = account.stage("target")
    ran = [one for one in devices if one.padded_tokens]
    paces = sorted(one.busy / one.padded_tokens for one in ran)
    usual = paces[(len(paces) - 1) // 2] if paces else 0.0
    beyond = sum(max(0.0, one.busy - one.padded_tokens * usual) for one in ran) / len(devices)
    return {"work": account.busy("target") - beyond, "imbalance": beyond}


def drafter_work(account: Account) -> Seconds:
    """``work``, ``exchange``, ``imbalance``, ``saving``; they add up to the mean time at work.

    Ranks end each step together, so the time that a rank is with the others is what it waits for
    the slowest, and the exchange. ``exchange`` is the least of any rank; ``imbalance`` what the
    middle rank (of two, the one that waits longer) is with the others beyond that. The first rank
    saves between steps while the others wait for it: that much of it is ``saving``, and no fault
    of its pace.
    """
    ranks = account.stage("drafter")
    meetings = [rank.meeting for rank in ranks]
    saving = max(0.0, ranks[0].busy - account.learn_seconds)
    if len(ranks) > 1:
        saving = min(saving, max(0.0, _middle(meetings[1:]) - meetings[0]))
    exchange = min(meetings)
    imbalance = max(0.0, _middle(meetings) - exchange - saving)
    work = account.busy("drafter") - exchange - imbalance - saving
    return {"work": work, "exchange": exchange, "imbalance": imbalance, "saving": saving}


def _middle(values: list[float]) -> float:
    """The middle one; the larger of two in the middle."""
    return sorted(values)[len(values) // 2]


def mean_waits(devices: list[Device]) -> Seconds:
    """Waits by cause, mean of the devices."""
    names = dict.fromkeys(name for device in devices for name in device.waits)
    return {
        name: sum(device.waits.get(name, 0.0) for device in devices) / len(devices)
        for name in names
    }


def outside(account: Account, rest: float) -> Seconds:
    """What no device's account holds: evaluations, the end, and what is not explained.

    Args:
        account: of the run.
        rest: seconds that are to be divided; may be negative, and then is not explained.
    """
    evaluation, ending = account.evaluation_seconds, 0.0
    if account.kind == "pipeline":
        devices = account.stage(slowest_stage(account))
        # The first target worker evaluates; the drafter goes on meanwhile.
        is_target = devices[0].key.startswith("target")
        evaluation = evaluation / len(devices) if is_target else 0.0
        ending = sum(device.tail for device in devices) / len(devices)
    evaluation = min(max(rest, 0.0), evaluation)
    ending = min(max(rest - evaluation, 0.0), ending)
    return {
        "evaluation": evaluation,
        "ending": ending,
        "unexplained": rest - evaluation - ending,
    }
