"""Every plot that a run's records allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.report.sections import Plot
from lengthwise.report.training.curves import (
    MOST_POINTS,
    mean_of_first,
    mean_of_last,
    smoothed,
    spans,
    thinned,
)
from lengthwise.report.training.run import known
from lengthwise.report.training.specs import Axes, Line, lines

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
        _fullness(run),
        _ready(run),
        _busy(run),
    ]
    return {plot.name: plot for plot in found if plot is not None}


def _plot(name: str, title: str, summary: str, curves: list[Line], axes: Axes) -> Plot | None:
    """A plot, unless there is nothing to draw."""
    if not any(curve.points for curve in curves):
        return None
    return Plot(name, title, summary, lines(curves, axes))


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
    return _plot(
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
    return _plot(
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
    return _plot(
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
    return _plot(
        "positions",
        "Accuracy by position, at the end",
        "How far ahead the drafter sees.",
        curves,
        Axes("position after the anchor", "accuracy", "~%", from_zero=True),
    )


def _learning_rate(run: TrainingRun) -> Plot | None:
    return _plot(
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
        return _plot(
            "speed",
            "Tokens a second",
            "Real tokens, by the time that a step took with the wait for its samples; smoothed.",
            [Line("real tokens", _smooth(run.over_steps("tokens_per_second")), 1)],
            Axes(STEPS, "tokens a second", "~s", from_zero=True),
        )
    curves = [
        Line("with padding", thinned(run.over_time("flow_padded_tokens_per_second")), 5),
        Line(
            "expected before the run", thinned(run.over_time("flow_expected_tokens_per_second")), 3
        ),
        Line("slowest stage alone", thinned(run.over_time("flow_predicted_tokens_per_second")), 2),
        Line("targets, real tokens", thinned(run.over_time("flow_tokens_per_second")), 1),
        Line("drafter, real tokens", thinned(run.over_time("flow_learnt_tokens_per_second")), 4),
    ]
    return _plot(
        "speed",
        "Tokens a second against prediction",
        "Of the last half minute. Slowest stage alone: real tokens a second at the speed at which "
        "it works here, if it never waited: over time the pipeline cannot be faster. Expected "
        "beforehand: simulated from timings taken before the first step.",
        curves,
        Axes(run.time_unit, "tokens a second", "~s", from_zero=True),
    )


def _step_times(run: TrainingRun) -> Plot | None:
    curves = [
        Line("waiting for samples", _smooth(run.over_steps("wait_seconds")), 2),
        Line("learning", _smooth(run.over_steps("learn_seconds")), 1),
    ]
    where = "the target runs in the wait" if not run.flows else "seen by the first drafter rank"
    return _plot(
        "step-times",
        "Seconds of a step",
        f"Smoothed; {where}.",
        curves,
        Axes(STEPS, "seconds", "~g", from_zero=True),
    )


def _fullness(run: TrainingRun) -> Plot | None:
    def filled(used: str, room: str) -> Points:
        return thinned(
            [
                (run.time(row), count / most)
                for row in run.flows
                if (count := known(row, used)) is not None and (most := known(row, room))
            ]
        )

    curves = [
        Line("prefetch", filled("flow_prefetch", "flow_prefetch_room"), 2),
        Line("arena", filled("flow_pages_used", "flow_num_pages"), 1),
    ]
    return _plot(
        "fullness",
        "How full: prefetch and arena",
        "Batches that targets have, of the most they can have; pages of features in use, of all.",
        curves,
        Axes(run.time_unit, "share", "~%", (0.0, 1.0)),
    )


def _ready(run: TrainingRun) -> Plot | None:
    return _plot(
        "ready",
        "Steps that wait for the drafter: hidden states",
        "Complete and not yet handed out. Always 0: the drafter waits for the targets.",
        [Line("steps ready", thinned(run.over_time("flow_hidden_states")), 1)],
        Axes(run.time_unit, "steps ready", "~f", from_zero=True, least_step=1),
    )


def _busy(run: TrainingRun) -> Plot | None:
    names = run.devices
    if len(names) <= MOST_LINES:
        curves = [
            Line(name.replace("_", " "), thinned(run.over_time(f"flow_busy_{name}")), place + 1)
            for place, name in enumerate(names)
        ]
    else:
        curves = [
            Line(f"{stage}s, mean of {len(own)}", thinned(_mean_busy(run, own)), place + 1)
            for place, stage in enumerate(("target", "drafter"))
            if (own := [name for name in names if name.startswith(stage)])
        ]
    return _plot(
        "busy",
        "Busy share of each device",
        "Time at work, of the last half minute. Processes on one CPU share it, and count as busy "
        "while they wait for a core.",
        curves,
        Axes(run.time_unit, "share busy", "~%", (0.0, 1.0)),
    )


def _mean_busy(run: TrainingRun, names: list[str]) -> Points:
    found = []
    for row in run.flows:
        values = [known(row, f"flow_busy_{name}") for name in names]
        shares = [value for value in values if value is not None]
        found += [(run.time(row), sum(shares) / len(shares))] if shares else []
    return found


def _spread(positions: list[int], most: int) -> list[int]:
    """At most ``most`` of the positions: the first, the last, and between them by doubling."""
    if len(positions) <= most:
        return positions
    last = positions[-1]
    steps = [last ** (place / (most - 1)) for place in range(most)]
    return sorted({min(positions, key=lambda k: abs(k - wanted)) for wanted in steps})
