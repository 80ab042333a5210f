"""Every plot that a run's records allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.report.sections import Plot
from lengthwise.report.training import flows
from lengthwise.report.training.curves import (
    MOST_POINTS,
    mean_of_first,
    mean_of_last,
    smoothed,
    spans,
    thinned,
)
from lengthwise.report.training.run import known
from lengthwise.report.training.specs import Axes, Line, lines, plot

if TYPE_CHECKING:
    from lengthwise.report.training.run import Points, TrainingRun

STEPS = "optimiser steps"
MOST_LINES = 5


def plots(run: TrainingRun) -> dict[str, Plot]:
    """Every plot, by name, in the order of the page."""
    found = [
        _acceptance(run),
        _loss(run),
        _by_length(run),
        _accuracy(run),
        _by_position(run),
        _learning_rate(run),
        _gradient(run),
        _speed(run),
        _step_times(run),
        flows.fullness(run),
        flows.ready(run),
        flows.busy(run),
    ]
    return {one.name: one for one in found if one is not None}


def _smooth(points: Points) -> Points:
    return thinned(smoothed(points))


def _acceptance(run: TrainingRun) -> Plot | None:
    measured = [row for row in run.evaluations if known(row, "eval_tokens_per_verify") is not None]
    errors = tuple(known(row, "eval_standard_error") or 0.0 for row in measured)
    curves = [
        Line("streak in training", _smooth(run.over_steps("streak")), 5, faint=True),
        Line("streak, held out", run.over_evaluations("eval_streak"), 2, marked=True),
        Line(
            "tokens per verification, held out",
            run.over_evaluations("eval_tokens_per_verify"),
            1,
            marked=True,
            errors=errors,
        ),
    ]
    return plot(
        "acceptance",
        "Tokens per verification",
        "What counts: held-out prompts decoded for real, with bars of one standard error. The "
        "streak is the same with true text before each block, and so lies above it.",
        curves,
        Axes(STEPS, "tokens per verification", ".2~f", least_step=0.01),
    )


def _loss(run: TrainingRun) -> Plot | None:
    raw, adjusted = run.over_steps("loss"), run.over_steps("adjusted_loss")
    curves = [
        Line("each step", thinned(raw), 5, faint=True),
        Line("adjusted by length", thinned(adjusted), 2, faint=True),
        Line("adjusted and smoothed" if adjusted else "smoothed", _smooth(adjusted or raw), 1),
        Line("held out", run.over_evaluations("eval_loss"), 3, marked=True),
    ]
    band = spans(raw) if len(raw) > MOST_POINTS else None
    if not raw:
        return None
    about = (
        "Nats a weighted label. Adjusted: what the step's mixture of lengths usually adds is "
        "removed. Smoothed: a mean over the steps so far, with a half-life of a fortieth of them."
    )
    if band:
        about += " The area spans least and largest loss of the steps that a point stands for."
    axes = Axes(STEPS, "loss", ".3~f")
    return Plot("loss", "Loss", about, lines(curves, axes, band))


def _by_length(run: TrainingRun) -> Plot | None:
    curves = [
        Line(words, _smooth(run.over_steps(name)), place + 1)
        for place, (name, words) in enumerate(run.lengths[:MOST_LINES])
    ]
    return plot(
        "lengths",
        "Loss by length of the sample",
        "Classes that give equally many blocks; smoothed.",
        curves,
        Axes(STEPS, "loss", ".3~f"),
    )


def _accuracy(run: TrainingRun) -> Plot | None:
    chosen = _spread(run.positions, MOST_LINES)
    curves = [
        Line(f"position {k}", _smooth(run.over_steps(f"accuracy_{k}")), place + 1)
        for place, k in enumerate(chosen)
    ]
    return plot(
        "accuracy",
        "Accuracy by position, over training",
        "Share of right predictions k places after a block's anchor; smoothed.",
        curves,
        Axes(STEPS, "accuracy", "~%", from_zero=True),
    )


def _by_position(run: TrainingRun) -> Plot | None:
    def profile(kind: str) -> Points:
        found = []
        for k in run.positions:
            points = run.over_steps(f"accuracy_{k}")
            value = mean_of_first(points) if kind == "first" else mean_of_last(points)
            found += [(float(k), value)] if value is not None else []
        return found

    last = run.evaluations[-1] if run.evaluations else {}
    held_out = [
        (float(k), value)
        for k in run.positions
        if (value := known(last, f"eval_accuracy_{k}")) is not None
    ]
    curves = [
        Line("first tenth of the steps", profile("first"), 5, marked=True),
        Line("last tenth of the steps", profile("last"), 1, marked=True),
        Line("held out, last evaluation", held_out, 2, marked=True),
    ]
    return plot(
        "positions",
        "Accuracy by position, at the end",
        "How far ahead the drafter sees.",
        curves,
        Axes("position after the anchor", "accuracy", "~%", from_zero=True),
    )


def _learning_rate(run: TrainingRun) -> Plot | None:
    return plot(
        "learning-rate",
        "Learning rate",
        "Of the first parameter group.",
        [Line("learning rate", thinned(run.over_steps("learning_rate")), 1)],
        Axes(STEPS, "learning rate", "~g", from_zero=True),
    )


def _gradient(run: TrainingRun) -> Plot | None:
    norms = [point for point in run.over_steps("grad_norm") if point[1] > 0]
    if not norms:
        return None
    values = sorted(norm for _, norm in norms)
    is_log = values[-1] > 30 * values[len(values) // 2]
    curves = [
        Line("each step", thinned(norms), 5, faint=True),
        Line("smoothed", _smooth(norms), 1),
    ]
    skipped = sum(bool(row.get("skipped")) for row in run.steps)
    about = "Before clipping."
    if skipped:
        steps = "step was" if skipped == 1 else "steps were"
        about += f" {skipped:,} {steps} skipped: loss or gradient was not finite."
    axes = Axes(STEPS, "gradient norm", "~g", is_log=is_log, from_zero=not is_log)
    return Plot("gradient", "Gradient norm", about, lines(curves, axes))


def _speed(run: TrainingRun) -> Plot | None:
    if not run.flows:
        return plot(
            "speed",
            "Tokens a second",
            "Real tokens, by the time that a step took with the wait for its samples; smoothed.",
            [Line("real tokens", _smooth(run.over_steps("tokens_per_second")), 1)],
            Axes(STEPS, "tokens a second", "~s", from_zero=True),
        )
    return flows.speed(run)


def _step_times(run: TrainingRun) -> Plot | None:
    curves = [
        Line("waiting for samples", _smooth(run.over_steps("wait_seconds")), 2),
        Line("learning", _smooth(run.over_steps("learn_seconds")), 1),
    ]
    where = "the target runs in the wait" if not run.flows else "seen by the first drafter rank"
    return plot(
        "step-times",
        "Seconds of a step",
        f"Smoothed; {where}.",
        curves,
        Axes(STEPS, "seconds", "~g", from_zero=True),
    )


def _spread(positions: list[int], most: int) -> list[int]:
    """At most ``most`` of the positions: the first, the last, and between them by doubling."""
    if len(positions) <= most:
        return positions
    last = positions[-1]
    steps = [last ** (place / (most - 1)) for place in range(most)]
    return sorted({min(positions, key=lambda k: abs(k - wanted)) for wanted in steps})
