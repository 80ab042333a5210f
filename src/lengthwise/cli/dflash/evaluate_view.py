"""Tables of an evaluation: by task, the histogram of accepted tokens, mismatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.cli.output import print_line, print_table
from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from lengthwise.dflash.decoding import Evaluation, TaskEvaluation

_BAR_WIDTH = 40
_MISMATCHES_SHOWN = 10


def show(about: dict[str, Any], found: Evaluation) -> None:
    """Print an evaluation on standard output."""
    columns = [
        "task",
        "prompts",
        "tokens",
        "tokens per verify",
        "num_accepted",
        "speed-up",
        "mismatches",
    ]
    rows = [_row(task) for task in found.tasks]
    if len(found.tasks) > 1:
        rows.append(_row(found.overall))
    how = "greedy" if not found.temperature else f"temperature {found.temperature:g}"
    title = (
        f"{about['drafter']} for {about['target']}, {how}, {about['device']}, {about['dtype']}, "
        f"blocks of {found.overall.block_size}"
    )
    print_table(title, columns, rows)
    _show_histogram(found.overall)
    _show_mismatches(found.overall)
    if not found.complete:
        print_line(
            f"the time ended after {found.overall.num_prompts:,} of {found.num_given:,} prompts"
        )


def _row(task: TaskEvaluation) -> list[str]:
    mean, error = task.tokens_per_verify, task.standard_error
    spread = "" if error is None else f" ± {error:.2f}"
    return [
        task.task,
        f"{task.num_prompts:,}",
        f"{task.num_tokens:,}",
        "-" if mean is None else f"{mean:.2f}{spread}",
        "-" if mean is None else f"{mean - 1:.2f}",
        "-" if task.speedup is None else f"{task.speedup:.2f}×",
        "-" if task.num_mismatches is None else f"{task.num_mismatches:,}",
    ]


def _show_histogram(task: TaskEvaluation) -> None:
    total = task.num_verifications
    if not total:
        return
    most = max(task.histogram)
    rows = [
        (
            f"{num_accepted}",
            "█" * round(_BAR_WIDTH * count / most),
            f"{count:,}",
            percent(count / total, 1),
        )
        for num_accepted, count in enumerate(task.histogram)
    ]
    print_line()
    print_table("num_accepted", ["", "", "verifications", "share"], rows, text_columns=2)


def _show_mismatches(task: TaskEvaluation) -> None:
    if not task.mismatches:
        return
    rows = [
        (
            one.task,
            f"{one.prompt:,}",
            f"{one.position:,}",
            "end" if one.plain_token is None else f"{one.plain_token}",
            "end" if one.drafted_token is None else f"{one.drafted_token}",
            "-" if one.logit_gap is None else f"{one.logit_gap:.3g}",
        )
        for one in task.mismatches[:_MISMATCHES_SHOWN]
    ]
    columns = ["task", "prompt", "position", "target's token", "with drafter", "logit gap"]
    print_line()
    print_table("mismatches: first difference of each output", columns, rows)
    if len(task.mismatches) > _MISMATCHES_SHOWN:
        print_line(f"and {len(task.mismatches) - _MISMATCHES_SHOWN:,} more")
