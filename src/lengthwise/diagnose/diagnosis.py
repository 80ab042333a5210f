"""Everything about a run, put together: what was promised, what came, why, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.training.run_files import METRICS_FILE, PREDICTION_FILE
from lengthwise.diagnose.account import account_of
from lengthwise.diagnose.advice import NOTHING, choose, mixing
from lengthwise.diagnose.candidates import Candidates
from lengthwise.diagnose.comparison import compare
from lengthwise.diagnose.loss import loss_series
from lengthwise.diagnose.monitor import LoopFigures, loop_advice, loop_figures
from lengthwise.diagnose.phases import in_turn, overall_bottleneck, phases_of
from lengthwise.diagnose.plan import open_plan
from lengthwise.diagnose.prediction import read_promise
from lengthwise.diagnose.records import figure, read_records
from lengthwise.diagnose.spikes import find_spikes
from lengthwise.diagnose.split import split_time
from lengthwise.diagnose.what_if import WhatIf
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from lengthwise.diagnose.account import Account
    from lengthwise.diagnose.advice import Advice
    from lengthwise.diagnose.causes import Cause
    from lengthwise.diagnose.comparison import Comparison
    from lengthwise.diagnose.loss import Jumpiness
    from lengthwise.diagnose.phases import Phase
    from lengthwise.diagnose.plan import RunPlan, StepContents
    from lengthwise.diagnose.records import RunRecords
    from lengthwise.diagnose.spikes import Spike
    from lengthwise.simulate.bottleneck import Bottleneck


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Diagnosis:
    """What is found out about a run.

    Attributes:
        source: where its records are.
        kind: ``"pipeline"``, ``"alone"`` or ``"monitor"``.
        num_steps: optimiser steps (or batches of a monitor) done, by the last record.
        account: where its time went; None where the records do not tell.
        time: the account of the slowest stage, or of one process, by cause.
        comparison: with the prediction; None without prediction or account.
        loop: of a monitor's log.
        bottleneck: over the whole run, in a sentence; None where nothing can be said.
        phases: what held the run up, by time.
        jumps: how the loss jumps; None where it is not known by length.
        classes: length classes of the loss, in words.
        spikes: steps whose loss leapt.
        skipped: steps whose loss or gradient was not finite.
        contents: step -> what it learnt from, of spikes and skipped steps.
        advice: what to change.
        notes: what is missing or damaged, in sentences.
    """

    source: str
    kind: str
    num_steps: int
    account: Account | None
    time: tuple[Cause, ...]
    comparison: Comparison | None
    loop: LoopFigures | None
    bottleneck: str | None
    phases: tuple[Phase, ...]
    jumps: Jumpiness | None
    classes: tuple[str, ...]
    spikes: tuple[Spike, ...]
    skipped: tuple[int, ...]
    contents: dict[int, StepContents]
    advice: Advice
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what is not known is None."""
        account, found, jumps = self.account, self.comparison, self.jumps
        return {
            "source": self.source,
            "kind": self.kind,
            "num_steps": self.num_steps,
            "seconds": account and account.seconds,
            "learnt_tokens": account and account.learnt_tokens,
            "tokens_per_second": account and account.tokens_per_second,
            "efficiency": account and account.efficiency,
            "loop": self.loop and asdict(self.loop),
            "prediction": found and _comparison_dict(found),
            "time": [
                {"name": one.name, "label": one.label, "seconds": one.seconds} for one in self.time
            ],
            "devices": [
                {"name": one.key, "busy_seconds": one.busy, "wait_seconds": dict(one.waits)}
                for one in (account.devices.values() if account else ())
            ],
            "bottleneck": self.bottleneck,
            "phases": [asdict(one) | {"finding": one.finding} for one in self.phases],
            "loss": jumps and self._loss_dict(jumps),
            "spikes": [asdict(one) | {"contents": self._contents(one.step)} for one in self.spikes],
            "skipped": [{"step": step, "contents": self._contents(step)} for step in self.skipped],
            "advice": asdict(self.advice),
            "notes": list(self.notes),
        }

    def _contents(self, step: int) -> dict[str, Any] | None:
        return asdict(self.contents[step]) if step in self.contents else None

    def _loss_dict(self, jumps: Jumpiness) -> dict[str, Any]:
        offsets = zip(self.classes, jumps.offsets.tolist(), strict=True)
        return {
            "num_steps": jumps.num_steps,
            "deviation": jumps.deviation,
            "variance_between": jumps.between,
            "variance_within": jumps.within,
            "share_between": jumps.share_between,
            "classes": [{"label": label, "offset": offset} for label, offset in offsets],
        }


def _comparison_dict(found: Comparison) -> dict[str, Any]:
    return {
        "predicted_tokens_per_second": found.predicted,
        "measured_tokens_per_second": found.measured,
        "low": found.low,
        "high": found.high,
        "is_inside": found.is_inside,
        "ratio": found.ratio,
        "predicted_seconds": found.predicted_seconds,
        "measured_seconds": found.measured_seconds,
        "causes": [
            {
                "name": one.name,
                "label": one.label,
                "seconds": one.seconds,
                "tokens_per_second": one.tokens_per_second,
            }
            for one in found.causes
        ],
    }


def diagnose(run: str | Path, *, with_plan: bool = True) -> Diagnosis:
    """Find out what a run did with its time, and why its loss jumps.

    Args:
        run: the ``output_dir`` of ``lengthwise dflash train``, or a JSONL file that a
            ``BatchMonitor`` or a run has written. The run may be going on.
        with_plan: plan the run again from its config and data, to name samples and to compare with
            other plans.

    Raises:
        DataError: there are no records of steps.
    """
    path = Path(run)
    directory = path if path.is_dir() else path.parent
    records = read_records(path / METRICS_FILE if path.is_dir() else path)
    notes = list(records.notes)
    plan = None
    if with_plan and records.kind != "monitor":
        plan, problem = open_plan(directory)
        notes += [problem] if problem else []
    account = account_of(records)
    comparison = _compared(records, account, directory, notes)
    classes, spikes, jumps = _loss(records, notes)
    loop = loop_figures(records) if records.kind == "monitor" else None
    held_up = overall_bottleneck(account) if account else None
    skipped = tuple(row["step"] for row in records.steps if row.get("skipped"))
    return Diagnosis(
        source=str(run),
        kind=records.kind,
        num_steps=records.steps[-1]["step"],
        account=account,
        time=split_time(account) if account else (),
        comparison=comparison,
        loop=loop,
        bottleneck=_words_of(account, held_up),
        phases=phases_of(records, None if held_up is None else held_up.kind),
        jumps=jumps,
        classes=classes,
        spikes=spikes,
        skipped=skipped,
        contents=_contents(plan, spikes, skipped, notes),
        advice=_advise(account, comparison, plan, jumps, loop),
        notes=tuple(notes),
    )


def _loss(
    records: RunRecords, notes: list[str]
) -> tuple[tuple[str, ...], tuple[Spike, ...], Jumpiness | None]:
    """Length classes, spikes and jumps."""
    series = loss_series(records)
    if series is not None:
        return series.classes, *find_spikes(series)
    if any(figure(row, "loss") is not None for row in records.steps):
        notes.append("the records tell no losses by length with their shares: jumps are not split")
    return (), (), None


def _words_of(account: Account | None, held_up: Bottleneck | None) -> str | None:
    if account is not None and account.kind == "alone":
        return in_turn(account)
    return None if held_up is None else held_up.finding


def _compared(
    records: RunRecords, account: Account | None, directory: Path, notes: list[str]
) -> Comparison | None:
    if records.kind == "monitor":
        return None
    if account is None:
        notes.append("the records tell no seconds by device: the run's time is not divided")
    try:
        promise = read_promise(directory / PREDICTION_FILE)
    except DataError as error:
        notes.append(f"the prediction is left out: {error}")
        return None
    if promise is None:
        notes.append(f"there is no {PREDICTION_FILE}: the run is compared with no prediction")
    return compare(account, promise) if account and promise else None


def _contents(
    plan: RunPlan | None, spikes: tuple[Spike, ...], skipped: tuple[int, ...], notes: list[str]
) -> dict[int, StepContents]:
    """What was in the steps that stand out, the newest ten of those skipped."""
    wanted: dict[int, int | None] = dict.fromkeys(skipped[-10:])
    wanted |= {spike.step: spike.length_class for spike in spikes}
    if plan is None or not wanted:
        return {}
    if max(wanted) > plan.plan.num_steps:
        notes.append("the config plans fewer steps than were made: steps are not named")
        return {}
    return {step: plan.contents(step, of_class) for step, of_class in sorted(wanted.items())}


def _advise(
    account: Account | None,
    comparison: Comparison | None,
    plan: RunPlan | None,
    jumps: Jumpiness | None,
    loop: LoopFigures | None,
) -> Advice:
    """The best change for speed or, where there is none, for the loss."""
    found = NOTHING
    if loop is not None:
        found = loop_advice(loop)
    elif account is not None:
        best = None if plan is None else plan.default_efficiency
        what_if = WhatIf(plan, account).gain if plan and account.kind == "pipeline" else None
        found = choose(
            Candidates(account, best, comparison, what_if or (lambda _split: None)).all()
        )
    if found is NOTHING:
        return mixing(jumps) or found
    return found
