"""What the page says in words and tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lengthwise.core.wording import duration
from lengthwise.report.sections import Fact
from lengthwise.report.tables import Column, Table
from lengthwise.report.training.curves import mean_of_first, mean_of_last
from lengthwise.report.training.run import known
from lengthwise.report.words import ABSENT, Term, count, share, significant

if TYPE_CHECKING:
    from lengthwise.report.training.run import Points, TrainingRun

BOTTLENECKS = {
    "balanced": "none: targets and drafter were both busy",
    "targets": "the targets",
    "drafter": "the drafter",
    "reading": "reading the data",
    "copying": "handing samples over to the drafter",
    "channel": "a channel that is too small",
    "dispatching": "giving out work",
}
"""The words of ``flow_bottleneck``."""


def headline(run: TrainingRun) -> str:
    """What the run has come to, in one sentence with numbers."""
    done = f"After {count(run.steps[-1]['step'])} optimiser steps"
    measured = run.over_evaluations("eval_tokens_per_verify")
    if measured:
        text = f"{done} the drafter gets {measured[-1][1]:.2f} tokens per verification"
        if len(measured) > 1:
            text += f", {measured[0][1]:.2f} at the first evaluation (step {measured[0][0]:,.0f})"
        return f"{text}, on prompts it was not trained on."
    first, last = (mean(run.over_steps("loss")) for mean in (mean_of_first, mean_of_last))
    if first is None or last is None:
        return f"{done} no loss has been finite."
    return f"{done} the loss is {last:.3f}, from {first:.3f}."


def setting(run: TrainingRun) -> str:
    """Size and shape of the run in one line."""
    last = run.steps[-1]
    parts = [f"{count(last['step'])} optimiser steps"]
    if (epoch := known(last, "epoch")) is not None:
        done = f"{count(epoch)} epoch{'s' if epoch > 1 else ''} done"
        parts.append(done if epoch else "in the first epoch")
    targets, drafters = (
        sum(name.startswith(stage) for name in run.devices) for stage in ("target", "drafter")
    )
    if run.devices:
        parts.append(f"devices: {targets} for the target, {drafters} for the drafter")
    else:
        parts.append("one process")
    if run.flows:
        parts.append(duration(run.flows[-1]["seconds"]))
    if run.num_repeated:
        parts.append(f"{count(run.num_repeated)} steps made again after an interruption")
    return " · ".join(parts)


def facts(run: TrainingRun) -> tuple[Fact, ...]:
    """The figures that one asks for first; what is unknown is left out."""
    found = []
    evaluation = run.evaluations[-1] if run.evaluations else {}
    if (value := known(evaluation, "eval_tokens_per_verify")) is not None:
        error = known(evaluation, "eval_standard_error")
        note = f"± {error:.2f} standard error" if error is not None else ""
        found.append(Fact("tokens per verification", f"{value:.2f}", note))
    losses = run.over_steps("loss")
    first, last = mean_of_first(losses), mean_of_last(losses)
    if first is not None and last is not None:
        note = f"last tenth of the steps; first tenth {first:.3f}"
        found.append(Fact("loss", f"{last:.3f}", note))
    accuracy = run.over_steps("accuracy")
    if (value := mean_of_last(accuracy)) is not None:
        note = f"last tenth of the steps; first tenth {share(mean_of_first(accuracy))}"
        found.append(Fact("accuracy", share(value), note))
    found += _speed(run)
    return tuple(found)


def _speed(run: TrainingRun) -> list[Fact]:
    if not run.flows:
        rate = mean_of_last(run.over_steps("tokens_per_second"), 1.0)
        return [Fact("tokens a second", count(rate), "mean over the steps")] if rate else []
    rate = _mean(run.over_time("flow_learnt_tokens_per_second"))
    alone = _mean(run.over_time("flow_predicted_tokens_per_second"))
    if rate is None or not alone:
        return []
    note = f"{share(rate / alone)} of the slowest stage alone"
    return [Fact("tokens a second", count(rate), note)]


def final_table(run: TrainingRun) -> Table:
    """Each figure of training: mean of the first and of the last tenth of the steps."""
    columns = (Column("figure", "figure", numeric=False), *_first_and_last())
    wanted = [
        ("loss", "loss", 4),
        ("loss, adjusted by length", "adjusted_loss", 4),
        ("streak", "streak", 3),
        ("gradient norm", "grad_norm", 3),
        ("learning rate", "learning_rate", 3),
        ("samples of a step", "num_samples", 3),
        ("blocks of a step", "num_blocks", 4),
        ("real tokens of a step", "real_tokens", 4),
        *((f"loss, {words}", name, 4) for name, words in run.lengths),
    ]
    rows = tuple(
        (words, *_two(run.over_steps(name), digits))
        for words, name, digits in wanted
        if run.over_steps(name)
    )
    return Table("Training, first and last tenth of the steps", columns, rows)


def position_table(run: TrainingRun) -> Table:
    """Accuracy of every position."""
    columns = (
        Column("position", "position", numeric=False),
        *_first_and_last(),
        Column("held out", "held out", better="higher"),
    )
    last = run.evaluations[-1] if run.evaluations else {}
    rows = tuple(
        (
            str(k),
            *(
                share(mean(run.over_steps(f"accuracy_{k}")))
                for mean in (mean_of_first, mean_of_last)
            ),
            share(known(last, f"eval_accuracy_{k}")),
        )
        for k in run.positions
    )
    return Table("Accuracy by position", columns, rows).without_empty_columns()


def evaluation_table(run: TrainingRun) -> Table:
    """Every evaluation."""
    columns = (
        Column("step", "step", numeric=False),
        Column("tokens per verification", "tokens", better="higher"),
        Column("standard error", "error"),
        Column("streak", "streak", better="higher"),
        Column("accuracy", "accuracy", better="higher"),
        Column("loss", "loss", better="lower"),
        Column("speed-up", "speed-up", better="higher"),
        Column("outputs that differ", "differ"),
        Column("prompts", "prompts"),
    )
    rows = tuple(
        (
            count(row["step"]),
            _fixed(known(row, "eval_tokens_per_verify")),
            _fixed(known(row, "eval_standard_error")),
            _fixed(known(row, "eval_streak")),
            share(known(row, "eval_accuracy")),
            significant(known(row, "eval_loss"), 4),
            _fixed(known(row, "eval_speedup")),
            count(known(row, "eval_mismatches")),
            count(known(row, "eval_num_prompts")),
        )
        for row in run.evaluations
    )
    return Table("Evaluations on held-out prompts", columns, rows).without_empty_columns()


def pipeline_table(run: TrainingRun) -> Table:
    """How the pipeline did over its last life."""
    last = run.flows[-1]
    devices = [
        (f"busy, {name.replace('_', ' ')}", share(known(last, f"flow_overall_busy_{name}")))
        for name in run.devices
    ]
    rows = [
        ("real tokens a second, targets", count(known(last, "flow_overall_tokens_per_second"))),
        ("the same with padding", count(known(last, "flow_overall_padded_tokens_per_second"))),
        ("efficiency of the target's batches", share(known(last, "flow_efficiency"))),
        ("efficiency by the plan", share(known(last, "flow_planned_efficiency"))),
        *devices,
        ("batches of the target", count(known(last, "flow_num_batches"))),
        ("batches run again", count(known(last, "flow_num_reruns"))),
        ("samples left out as bad", count(known(last, "flow_num_bad"))),
    ]
    shown = tuple(row for row in rows if row[1] != ABSENT)
    columns = (Column("figure", "figure", numeric=False), Column("value", "value"))
    return Table("The pipeline since it was last started", columns, shown)


def bottlenecks(run: TrainingRun) -> str:
    """What held the pipeline up, by share of its records; empty where nothing was named."""
    found = Counter(row["flow_bottleneck"] for row in run.flows if row.get("flow_bottleneck"))
    total = sum(found.values())
    parts = [
        f"{BOTTLENECKS.get(kind, kind)} ({share(number / total, 0)})"
        for kind, number in found.most_common()
    ]
    return "; ".join(parts)


def _fixed(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.2f}"


def _first_and_last() -> tuple[Column, Column]:
    return Column("first tenth", "first tenth"), Column("last tenth", "last tenth")


def _two(points: Points, digits: int) -> tuple[str, str]:
    first, last = mean_of_first(points), mean_of_last(points)
    return significant(first, digits), significant(last, digits)


def _mean(points: Points) -> float | None:
    return sum(value for _, value in points) / len(points) if points else None


GLOSSARY = (
    Term(
        "tokens per verification",
        "Tokens that one forward pass of the target yields in decoding: those of the drafter that "
        "it accepts, and one of its own. Without a drafter 1.",
    ),
    Term(
        "streak",
        "In training, for every block: labels predicted right from the first on without a gap, "
        "and one. With true text before each block.",
    ),
    Term(
        "loss, adjusted",
        "The weighted mean cross-entropy of a step's labels. Samples of different lengths differ "
        "in their loss; adjusted is l − Σ wₖ (mₖ − m), where wₖ is the share of length class k in "
        "the step, mₖ its usual loss and m the usual loss of all, both means of the steps before "
        "with a half-life of 100 steps.",
    ),
    Term(
        "prefetch",
        "Batches that target workers have and have not finished. Full is normal while there is "
        "room in the arena.",
    ),
    Term(
        "hidden states",
        "Optimiser steps whose samples have all arrived and that no drafter rank has yet.",
    ),
    Term(
        "arena",
        "Shared memory in which the target's features wait, in pages. Much of it is the pool from "
        "which steps draw at random.",
    ),
    Term(
        "slowest stage alone",
        "Real tokens over seconds at work, times the processes of a stage: what it would do if it "
        "never waited. The smaller of targets and drafter.",
    ),
    Term("efficiency", "Real tokens over padded tokens of the target's batches."),
)
"""The words of the report with exact definitions."""
