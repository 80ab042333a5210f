"""What a person sees of a training run: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from lengthwise.cli.output import LOG_SECONDS, print_note, print_table, print_warning
from lengthwise.core.wording import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.progress import Progress, TaskID

    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.expect import Expectation
    from lengthwise.dflash.training.log import RunLog
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.training.progress import Position, StepFacts
    from lengthwise.dflash.update import StepResult

WIDE = 100
"""Columns from which the live line has room for a longer bar and the speed."""

Record = dict[str, Any]


class TrainView:
    """Passes everything on to the log, and shows some of it on standard error.

    Args:
        total_steps: optimiser steps of the whole run.
        log: takes the records.
        quiet: show warnings only.

    Attributes:
        log: the records.
        num_skipped: steps that were not finite.
    """

    def __init__(self, total_steps: int, log: RunLog, *, quiet: bool) -> None:
        """Nothing is shown yet."""
        self.log = log
        self.num_skipped = 0
        self._total = total_steps
        self._quiet = quiet
        self._began = self._next = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._wide = False
        self._num_before: int | None = None

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        """Begin to show."""
        self._began = self._next = time.monotonic()
        if sys.stderr.isatty() and not self._quiet:
            self._start_bar()
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def expected(self, expectation: Expectation) -> None:
        """Say what the run can expect."""
        if not self._quiet:
            show_facts([("expected", words) for words in expectation_lines(expectation)])

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """Show the newest figures."""
        self.log.stepped(position, result, facts)
        if self._num_before is None:
            self._num_before = position.num_steps - 1
        if result.outcome == "skipped":
            self.num_skipped += 1
            print_warning(
                f"step {position.num_steps:,} skipped: loss or gradient is not finite; "
                f"skipped.jsonl has its samples"
            )
        if not self._quiet:
            self._show(position.num_steps)

    def evaluated(self, position: Position, evaluation: Evaluation, sums: DraftSums) -> None:
        """Show an evaluation; it stays on the screen."""
        self.log.evaluated(position, evaluation, sums)
        if not self._quiet:
            record = self.log.last_evaluation
            print_note(f"step {position.num_steps:,}, held out: {_held_out(record)}")

    def saved(self, position: Position, path: Location) -> None:
        """Name a checkpoint."""
        self.log.saved(position, path)
        if not self._quiet:
            print_note(f"step {position.num_steps:,}: saved {path}")

    def _show(self, done: int) -> None:
        figures = _figures(self.log.last, speed=self._wide or self._bar is None)
        left = self._left(done)
        figures += [left] if left else []
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, figures="  ".join(figures))
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LOG_SECONDS
            print_note(f"step {done:,} of {self._total:,}: {', '.join(figures)}")

    def _left(self, done: int) -> str:
        """The time to go, as the steps of this process went; evaluations count in."""
        made = done - (self._num_before or 0)
        if made < 1 or done >= self._total:
            return ""
        return f"{duration((self._total - done) * self.seconds / made)} left"

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        console = Console(file=sys.stderr)
        self._wide = console.width >= WIDE
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(24 if self._wide else 10),
            TextColumn("{task.completed:,}/{task.total:,}"),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(
            "training", total=self._total, figures="the target fills the pool"
        )
        self._bar.start()


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """What is about to run, on standard error: names, and what they are."""
    for name, text in facts:
        print_note(f"{name:<9} {text}")


def expectation_lines(found: Expectation) -> list[str]:
    """Throughput, time to go, and what limits them."""
    rate = f"{found.tokens_per_second:,.0f} real tokens/s ({found.low:,.0f} to {found.high:,.0f})"
    lines = [f"{rate}, so {duration(found.seconds)} to go, without evaluations and checkpoints"]
    busy = f"targets {percent(found.target_busy, 0)}, drafter {percent(found.drafter_busy, 0)}"
    if not found.num_drafters:
        return [*lines, f"of that time: {busy}"]
    limits = {
        "targets": "the targets are the bottleneck",
        "drafter": "the drafter is the bottleneck",
    }
    held = limits.get(found.bottleneck or "", found.bottleneck or "no bottleneck")
    return [*lines, f"busy: {busy}; {held}"]


def show_summary(summary: Record) -> None:
    """How the run ended, on standard output: what counts first."""
    rows = [
        ("held out: tokens per verification", "eval_tokens_per_verify", ".2f"),
        ("held out: speed-up", "eval_speedup", ".2f"),
        ("held out: outputs that differ", "eval_mismatches", ",d"),
        ("held out: streak", "eval_streak", ".2f"),
        ("held out: accuracy", "eval_accuracy", ".3f"),
        ("held out: loss", "eval_loss", ".4f"),
        ("last step: streak", "streak", ".2f"),
        ("last step: accuracy", "accuracy", ".3f"),
        ("last step: loss", "loss", ".4f"),
    ]
    shown = [
        (words, format(summary[key], form)) for words, key, form in rows if summary[key] is not None
    ]
    shown.append(("optimiser steps", f"{summary['num_steps']:,} of {summary['total_steps']:,}"))
    if summary["num_skipped"]:
        shown.append(("steps skipped, not finite", f"{summary['num_skipped']:,}"))
    print_table("interrupted" if summary["interrupted"] else "trained", ["", "value"], shown)


def _figures(record: Record, *, speed: bool) -> list[str]:
    figures = [
        f"loss {_or_dash(record['loss'], '.4f')}",
        f"streak {_or_dash(record['streak'], '.2f')}",
    ]
    if speed:
        figures.append(f"{_or_dash(record['tokens_per_second'], ',.0f')} tokens/s")
    return figures


def _held_out(record: Record) -> str:
    parts = []
    if record["eval_tokens_per_verify"] is not None:
        parts.append(f"{record['eval_tokens_per_verify']:.2f} tokens per verification")
    parts += [
        f"streak {_or_dash(record['eval_streak'], '.2f')}",
        f"loss {_or_dash(record['eval_loss'], '.4f')}",
    ]
    return ", ".join(parts)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
