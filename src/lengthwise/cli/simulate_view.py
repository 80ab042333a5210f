"""How ``lengthwise simulate`` shows its result in a terminal."""

from __future__ import annotations

from typing import Any

from lengthwise.cli.output import print_line, print_table
from lengthwise.core.wording import memory, percent, seconds_of

_CAUSES = {
    "target": {
        "transfer": "their features have left",
        "channel": "there is room in the channel",
        "input": "samples are read",
        "end": "the others are done",
    },
    "drafter": {
        "start": "the first samples come",
        "samples": "samples come",
        "transfer": "samples are copied",
        "end": "the others are done",
    },
}
_WORTH = 0.005
"""Share of a stage's time from which a wait is told."""


def print_simulation(result: dict[str, Any]) -> None:
    """Print the devices, what comes out, who waits for what, and what more devices buy."""
    if result["splits"]:
        _print_splits(result)
    rows = [
        ("targets + drafters", f"{result['num_targets']:,} + {result['num_drafters']:,}"),
        ("tokens a second", _rate(result)),
        ("an epoch", seconds_of(result["seconds"])),
        ("batches, steps", f"{result['num_arrivals']:,}, {result['num_steps']:,}"),
        ("efficiency of the target's batches", percent(result["efficiency"], 2)),
        ("targets at work", percent(result["target_busy"], 1)),
        ("drafter at work", percent(result["drafter_busy"], 1)),
        ("most that waited between them", memory(result["peak_channel_bytes"])),
    ]
    if result["epochs"] > 1:
        rows.insert(3, (f"{result['epochs']} epochs", seconds_of(result["eta_seconds"])))
    print_table("one epoch, simulated", ["", "value"], rows)
    num_lanes = result["num_drafters"] if result["independent"] else 1
    for stage, lanes in (("target", result["num_targets"]), ("drafter", num_lanes)):
        for line in _waits(stage, result["waits"][stage], lanes * result["seconds"]):
            print_line(line)
    if result["finding"]:
        print_line(f"{result['finding'].capitalize()}.")
    print_line(_more(result["one_more"]))


def _rate(result: dict[str, Any]) -> str:
    text = f"{result['tokens_per_second']:,.0f}"
    if result["low"] == result["high"]:
        return text
    return f"{text} ({result['low']:,.0f} to {result['high']:,.0f})"


def _print_splits(result: dict[str, Any]) -> None:
    rows = [
        (
            f"{one['num_targets']:,} + {one['num_drafters']:,}",
            f"{one['tokens_per_second']:,.0f}",
            percent(one["target_busy"], 1),
            percent(one["drafter_busy"], 1),
            one["bottleneck"] or "-",
        )
        for one in result["splits"]
    ]
    columns = ["targets + drafters", "tokens/s", "targets busy", "drafter busy", "bottleneck"]
    print_table("splits", columns, rows)
    print_line()


def _waits(stage: str, waits: dict[str, float], whole: float) -> list[str]:
    """One line for each cause that matters; ``whole``: all the time its devices have."""
    who = "targets wait" if stage == "target" else "the drafter waits"
    return [
        f"{who} {percent(seconds / whole, 1)} of the time until {_CAUSES[stage][cause]}"
        for cause, seconds in sorted(waits.items(), key=lambda item: -item[1])
        if whole and seconds / whole >= _WORTH
    ]


def _more(gains: dict[str, float]) -> str:
    return (
        f"One target device more: {gains['target']:+.1%} tokens a second; one drafter device more: "
        f"{gains['drafter']:+.1%}."
    )
