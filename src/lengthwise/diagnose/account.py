"""Where a run's time went, by device and cause, from the counts that it wrote down.

Everything here is a sum over the lives of a run: a run that was resumed counts anew, and its last
record before that is the end of a life.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from lengthwise.diagnose.records import figure, lives
from lengthwise.simulate.bottleneck import FULL_PAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.diagnose.records import Record, RunRecords

_DEVICE = re.compile(r"flow_busy_seconds_((?:target|drafter)_\d+)$")


@dataclass(slots=True)
class Device:
    """What one process did with its time, in seconds.

    Attributes:
        key: ``target_0``, ``drafter_1``.
        busy: at work; of a rank, evaluating on the way, saving and waiting for other ranks too.
        waits: cause -> seconds without work. ``starting``: up to its first record with work: files
            are opened, the pool fills. Then, of a target: ``reading`` (it had a batch, whose rows
            were being read), ``room`` (it had none, and the arena had no room for the next),
            ``work`` (it had none, though there was room); of the last two each as often as records
            show the arena full and not full. Of a rank: ``copying`` (its
            samples had arrived and were being copied), ``samples`` (they had not arrived).
        meeting: of the time at work, in which a rank waited for the others or gradients were
            summed.
        padded_tokens: that a target has run.
        tail: after its last piece of work, as far as records can tell: the most it can have been.
    """

    key: str
    busy: float = 0.0
    waits: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    meeting: float = 0.0
    padded_tokens: int = 0
    tail: float = 0.0

    @property
    def name(self) -> str:
        """For people."""
        stage, _, number = self.key.partition("_")
        return f"target worker {number}" if stage == "target" else f"drafter rank {number}"

    @property
    def waited(self) -> float:
        """All waits together."""
        return sum(self.waits.values())


@dataclass(slots=True)
class Account:
    """A run's time and what was done in it; sums over its lives.

    Attributes:
        kind: ``"pipeline"`` or ``"alone"``.
        seconds: of the run: of a pipeline since the first work was given out, of one process since
            its first step began.
        learnt_tokens: real tokens of the optimiser steps made.
        num_steps: these steps.
        target_tokens: real tokens that targets have run.
        padded_tokens: the same with padding.
        token_squares: sum over their batches of padded tokens times the longest sample.
        num_batches: of the targets.
        learn_seconds: of the first rank, in steps.
        evaluation_seconds: of evaluations inside ``seconds``.
        planned_efficiency: real over padded tokens by the plan; None while unknown.
        planned_batch_tokens: real tokens of a batch by the plan; None while unknown.
        devices: every process, targets first; of one process ``target_0`` and ``drafter_0``, which
            take turns.
        load: for the rule of the bottleneck: ``prefetch`` and ``hidden_states``, means over the
            time in which steps were learnt from and targets ran, and ``pages``, the middle of
            the records in which targets could have had another batch. Empty for one process.
    """

    kind: str
    seconds: float = 0.0
    learnt_tokens: int = 0
    num_steps: int = 0
    target_tokens: int = 0
    padded_tokens: int = 0
    token_squares: int = 0
    num_batches: int = 0
    learn_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    planned_efficiency: float | None = None
    planned_batch_tokens: float | None = None
    devices: dict[str, Device] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)

    @property
    def tokens_per_second(self) -> float:
        """Real tokens learnt from in a second."""
        return self.learnt_tokens / self.seconds

    @property
    def efficiency(self) -> float:
        """Real over padded tokens of the targets' batches; 1 where none was run."""
        return self.target_tokens / self.padded_tokens if self.padded_tokens else 1.0

    def stage(self, name: str) -> list[Device]:
        """The devices of ``"target"`` or ``"drafter"``."""
        return [device for key, device in self.devices.items() if key.startswith(name)]

    def busy(self, name: str) -> float:
        """Seconds at work of a stage; mean of its devices."""
        devices = self.stage(name)
        return sum(device.busy for device in devices) / len(devices) if devices else 0.0


def account_of(records: RunRecords) -> Account | None:
    """Add up a run; None where its records hold no such counts, or no step was finished."""
    if records.kind == "pipeline":
        found = _of_pipeline(records)
    elif records.totals:
        found = _of_process(records)
    else:
        return None
    return found if found.seconds > 0 and found.learnt_tokens else None


_COUNTS = (
    "learnt_tokens", "target_tokens", "padded_tokens", "token_squares", "num_batches",
)  # fmt: skip


def _of_process(records: RunRecords) -> Account:
    account = Account("alone")
    target, drafter = Device("target_0"), Device("drafter_0")
    counters = ("total_steps", "total_seconds")
    for life in lives(records.totals, counters):
        last = life[-1]
        account.seconds += _get(last, "total_seconds")
        account.num_steps += int(_get(last, "total_steps"))
        account.learnt_tokens += int(_get(last, "total_real_tokens"))
        for name in _COUNTS[1:]:
            setattr(account, name, getattr(account, name) + int(_get(last, f"total_{name}")))
        target.busy += _get(last, "total_wait_seconds")
        drafter.busy += _get(last, "total_learn_seconds")
    account.learn_seconds = drafter.busy
    target.padded_tokens = account.padded_tokens
    last_step = records.steps[-1]["step"]
    # The evaluation after the last step comes after the last record of a step.
    account.evaluation_seconds = sum(
        _get(row, "eval_seconds") for row in records.evaluations if 0 < row["step"] < last_step
    )
    account.devices = {one.key: one for one in (target, drafter)}
    return account


def _of_pipeline(records: RunRecords) -> Account:
    account = Account("pipeline")
    counters = ("flow_seconds", "flow_real_tokens", "flow_learnt_tokens")
    means = _Means()
    for life in lives(records.flows, counters):
        last = life[-1]
        account.seconds += _get(last, "flow_seconds")
        account.num_steps += int(_get(last, "flow_learnt_steps"))
        account.learn_seconds += _get(last, "flow_learn_seconds")
        account.target_tokens += int(_get(last, "flow_real_tokens"))
        for name in ("learnt_tokens", "padded_tokens", "token_squares", "num_batches"):
            setattr(account, name, getattr(account, name) + int(_get(last, f"flow_{name}")))
        account.planned_efficiency = figure(last, "flow_planned_efficiency")
        account.planned_batch_tokens = figure(last, "flow_planned_batch_tokens")
        _add_devices(account, life)
        means.add(life)
    ordered = sorted(account.devices, key=_place)
    account.devices = {key: account.devices[key] for key in ordered}
    account.evaluation_seconds = sum(_get(row, "eval_seconds") for row in records.evaluations)
    account.load = means.values()
    return account


def _add_devices(account: Account, life: Sequence[Record]) -> None:
    """What every process did in a life."""
    full = _share_full(life)
    keys = [match[1] for name in life[-1] if (match := _DEVICE.match(name))]
    for key in keys:
        device = account.devices.setdefault(key, Device(key))
        device.meeting += _get(life[-1], f"flow_meeting_seconds_{key}")
        device.padded_tokens += int(_get(life[-1], f"flow_padded_tokens_{key}"))
        before: dict[str, Any] = {}
        since = 0.0
        for record in life:
            busy, waited, inputs = (
                _get(record, f"flow_{name}_seconds_{key}")
                - _get(before, f"flow_{name}_seconds_{key}")
                for name in ("busy", "wait", "input")
            )
            if busy and not _get(before, f"flow_busy_seconds_{key}"):
                # What it waited before the run began is no part of it.
                left = max(0.0, _get(record, "flow_seconds") - busy)
                device.waits["starting"] += min(waited, left)
            else:
                _add_waits(device, waited, inputs, full)
            device.busy += busy
            since = _get(before, "flow_seconds") if busy else since
            before = record
        device.tail += _get(life[-1], "flow_seconds") - since


def _add_waits(device: Device, waited: float, inputs: float, full: float) -> None:
    """Divide a wait by cause; ``full`` is how often the arena was when targets lacked a batch."""
    if device.key.startswith("target"):
        device.waits["reading"] += inputs
        device.waits["room"] += (waited - inputs) * full
        device.waits["work"] += (waited - inputs) * (1 - full)
    else:
        device.waits["copying"] += inputs
        device.waits["samples"] += waited - inputs


def _share_full(life: Sequence[Record]) -> float:
    """Of the records in which targets could have had another batch, those with a full arena."""
    found = [_fullness(record) >= FULL_PAGES for record in _lacking(life)]
    return sum(found) / len(found) if found else 0.0


def _lacking(life: Sequence[Record]) -> list[Record]:
    """Records in which targets could have had another batch, and there still was one."""
    last = _get(life[-1], "flow_real_tokens")
    return [
        record
        for record in life
        if _get(record, "flow_prefetch") < _get(record, "flow_prefetch_room")
        and _get(record, "flow_real_tokens") < last
    ]


def _fullness(record: Record) -> float:
    """How full the arena was: 1 where the next batch would find no room."""
    usable = figure(record, "flow_usable_pages")
    return min(1.0, _get(record, "flow_pages_used") / usable) if usable else 0.0


class _Means:
    """How full things were, weighted by time, while steps were being learnt from."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._seconds = 0.0
        self._fullness: list[float] = []

    def add(self, life: Sequence[Record]) -> None:
        before: Record = {}
        for record in life:
            seconds = _get(record, "flow_seconds") - _get(before, "flow_seconds")
            was_running = bool(_get(before, "flow_learnt_tokens"))
            is_ending = _get(before, "flow_real_tokens") == _get(life[-1], "flow_real_tokens")
            before = record
            if not was_running or is_ending:
                continue
            room = _get(record, "flow_prefetch_room")
            self._seconds += seconds
            self._sums["prefetch"] += seconds * (
                _get(record, "flow_prefetch") / room if room else 0.0
            )
            self._sums["hidden_states"] += seconds * _get(record, "flow_hidden_states")
        self._fullness += [_fullness(record) for record in _lacking(life)]

    def values(self) -> dict[str, float]:
        if not self._seconds:
            return {}
        means = {name: value / self._seconds for name, value in self._sums.items()}
        return means | {"pages": median(self._fullness) if self._fullness else 0.0}


def _place(key: str) -> tuple[bool, int]:
    stage, _, number = key.partition("_")
    return stage == "drafter", int(number)


def _get(record: Record, name: str) -> float:
    return figure(record, name) or 0.0
