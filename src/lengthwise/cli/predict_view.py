"""How ``lengthwise predict`` shows its result in a terminal."""

from __future__ import annotations

from typing import Any

from lengthwise.cli.output import print_line, print_table
from lengthwise.core.wording import percent, seconds_of

_SHORT = {
    "overhead": "overhead",
    "tokens": "real tokens",
    "padding": "padding",
    "attention": "attention",
    "padding_attention": "its padding",
    "waiting": "waiting",
    "synchronising": "synchronising",
}


def print_prediction(result: dict[str, Any]) -> None:
    """Print the strategies, where their time goes, and the run."""
    replicas = result["num_replicas"]
    noun = "replica" if replicas == 1 else "replicas"
    print_line(
        f"{result['num_samples']:,} samples, {result['real_tokens']:,} tokens; batches of up to "
        f"{result['limits']['max_tokens']:,} padded tokens on {replicas:,} {noun}\n"
    )
    _print_strategies(result)
    print_line()
    _print_parts(result)
    print_line()
    print_line(_run(result))
    for note in result["notes"]:
        print_line(f"Note: {note}.")


def _print_strategies(result: dict[str, Any]) -> None:
    rows = [
        (
            name,
            row["label"],
            seconds_of(row["seconds"]),
            f"{row['tokens_per_second']:,.0f}",
            _interval(row),
            f"{row['ratio_to_sorted']:.3f}",
            percent(row["efficiency"], 2),
            percent(row["rank_imbalance"]),
            f"{row['num_batches']:,.0f}",
        )
        for name, row in result["strategies"].items()
    ]
    print_table(
        "An epoch under each strategy",
        (
            "strategy", "", "an epoch", "tokens/s", f"{percent(result['level'], 0)} interval",
            "to sorted", "efficiency", "waiting", "batches",
        ),
        rows,
        text_columns=2,
    )  # fmt: skip


def _interval(row: dict[str, Any]) -> str:
    if row["tokens_per_second_low"] is None:
        return "-"
    return f"{row['tokens_per_second_low']:,.0f} to {row['tokens_per_second_high']:,.0f}"


def _print_parts(result: dict[str, Any]) -> None:
    strategies = result["strategies"]
    names = [
        name
        for name in _SHORT
        if any(row["parts"].get(name, 0.0) > 0 for row in strategies.values())
    ]
    rows = [
        (
            strategy,
            *(
                percent(row["parts"][name] / row["seconds"]) if name in row["parts"] else "-"
                for name in names
            ),
        )
        for strategy, row in strategies.items()
    ]
    print_table(
        "What an epoch's time goes into", ("strategy", *(_SHORT[name] for name in names)), rows
    )


def _run(result: dict[str, Any]) -> str:
    """The run in a sentence."""
    name, epochs = result["run_of"], result["num_epochs"]
    row = result["strategies"][name]
    noun = "epoch" if epochs == 1 else "epochs"
    text = f"The run, {epochs:,} {noun} of {name}: {seconds_of(row['run_seconds'])}"
    if row["run_low"] is None:
        return f"{text}."
    return f"{text}, {seconds_of(row['run_low'])} to {seconds_of(row['run_high'])}."
