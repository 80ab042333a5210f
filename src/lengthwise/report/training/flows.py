"""Plots of how a pipeline flowed: speed, queues, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.report.training.curves import thinned
from lengthwise.report.training.run import known
from lengthwise.report.training.specs import Axes, Line, plot

if TYPE_CHECKING:
    from lengthwise.report.sections import Plot
    from lengthwise.report.training.run import Points, TrainingRun

MOST_LINES = 5
"""That can be told apart by colour."""


def speed(run: TrainingRun) -> Plot | None:
    """Tokens a second of both stages, beside what was expected."""
    curves = [
        Line("with padding", thinned(run.over_time("flow_padded_tokens_per_second")), 5),
        Line(
            "expected before the run", thinned(run.over_time("flow_expected_tokens_per_second")), 3
        ),
        Line("slowest stage alone", thinned(run.over_time("flow_predicted_tokens_per_second")), 2),
        Line("targets, real tokens", thinned(run.over_time("flow_tokens_per_second")), 1),
        Line("drafter, real tokens", thinned(run.over_time("flow_learnt_tokens_per_second")), 4),
    ]
    return plot(
        "speed",
        "Tokens a second against prediction",
        "Of the last half minute. Slowest stage alone: real tokens a second at the speed at which "
        "it works here, if it never waited: over time the pipeline cannot be faster. Expected "
        "beforehand: simulated from timings taken before the first step.",
        curves,
        Axes(run.time_unit, "tokens a second", "~s", from_zero=True),
    )


def fullness(run: TrainingRun) -> Plot | None:
    """Prefetch and arena."""

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
    return plot(
        "fullness",
        "How full: prefetch and arena",
        "Batches that targets have, of the most they can have; pages of features in use, of all.",
        curves,
        Axes(run.time_unit, "share", "~%", (0.0, 1.0)),
    )


def ready(run: TrainingRun) -> Plot | None:
    """Steps that wait for the drafter."""
    return plot(
        "ready",
        "Steps that wait for the drafter: hidden states",
        "Complete and not yet handed out. Always 0: the drafter waits for the targets.",
        [Line("steps ready", thinned(run.over_time("flow_hidden_states")), 1)],
        Axes(run.time_unit, "steps ready", "~f", from_zero=True, least_step=1),
    )


def busy(run: TrainingRun) -> Plot | None:
    """Busy shares of devices."""
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
    return plot(
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
