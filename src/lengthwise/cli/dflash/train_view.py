"""What a person sees of a training run: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from lengthwise.cli.output import LOG_SECONDS, print_note, print_warning

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress, TaskID

    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.log import RunLog
    from lengthwise.dflash.training.loop import Position, StepFacts
    from lengthwise.dflash.training.setup import Setup
    from lengthwise.dflash.update import StepResult


class TrainView:
    """Passes everything on to the log, and shows some of it.

    Attributes:
        log: the records.
        seconds: since the first step began.
        num_skipped: steps that were not finite.
    """

    def __init__(self, setup: Setup, log: RunLog, *, quiet: bool) -> None:
        """Nothing is shown yet."""
        self.log = log
        self.num_skipped = 0
        self._total = setup.plan.num_steps
        self._quiet = quiet
        self._began = self._next = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._done_before: int | None = None

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

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """Show the newest figures."""
        self.log.stepped(position, result, facts)
        if self._done_before is None:
            self._done_before = position.num_steps - 1
        if result.outcome == "skipped":
            self.num_skipped += 1
            print_warning(f"step {position.num_steps:,} skipped: loss or gradient is not finite")
        if self._quiet:
            return
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, completed=position.num_steps, figures=_figures(self.log.last)
            )
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LOG_SECONDS
            eta = self._eta(position.num_steps)
            print_note(
                f"step {position.num_steps:,} of {self._total:,}: {_figures(self.log.last)}{eta}"
            )

    def evaluated(self, position: Position, evaluation: Evaluation, sums: DraftSums) -> None:
        """Show an evaluation; it stays on the screen."""
        self.log.evaluated(position, evaluation, sums)
        record = self.log.last_evaluation
        if not self._quiet:
            print_note(
                f"step {position.num_steps:,}: held-out loss {record['eval_loss']:.4f}, accuracy "
                f"{_or_dash(record['eval_accuracy'], '.3f')}, tokens per verification "
                f"{_or_dash(record['eval_tokens_per_verify'], '.2f')}"
            )

    def saved(self, position: Position, path: Path) -> None:
        """Name a checkpoint."""
        self.log.saved(position, path)
        if not self._quiet:
            print_note(f"saved {path}")

    def _eta(self, done: int) -> str:
        made = done - (self._done_before or 0)
        if not made or done >= self._total:
            return ""
        left = (self._total - done) * self.seconds / made
        return f", {left / 60:,.0f} min to go"

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
            redirect_stderr=True,
        )
        self._task = self._bar.add_task("training", total=self._total, figures="")
        self._bar.start()


def _figures(record: dict[str, Any]) -> str:
    return (
        f"loss {record['loss']:.4f}, accuracy {_or_dash(record['accuracy'], '.3f')}, "
        f"{_or_dash(record['tokens_per_second'], ',.0f')} tokens/s"
    )


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
