"""How ``lengthwise optimize`` shows its result in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.cli.optimize_search import print_search
from lengthwise.cli.output import print_line, print_table
from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from lengthwise.core.histogram import LengthHistogram

_CURVE_SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_COSTS = {"padding": "padded tokens", "steps": "batches", "seconds": "seconds"}


def print_optimum(result: dict[str, Any], hist: LengthHistogram) -> None:
    """Print the boundaries, their buckets, the baselines and what optimal means."""
    print_line(f"{result['num_samples']:,} samples, {result['real_tokens']:,} tokens")
    print_line(f"{hist.shortest:,} {hist.sparkline()} {hist.longest:,}\n")
    if "curve" in result:
        _print_curve(result)
    _print_buckets(result)
    _print_baselines(result)
    print_line(f"boundaries = {result['boundaries']}")
    if "reason" in result:
        print_line(f"Recommended: {result['reason']}.")
    print_line(what_optimal_means(result))
    if "least_padding" in result:
        print_line(what_it_wins(result))
    for note in result["notes"]:
        print_line(f"Note: {note}.")
    if "settings" in result:
        print_line()
        print_search(result["settings"])


def what_it_wins(result: dict[str, Any]) -> str:
    """What an epoch takes, and how much less than with the boundaries of least padding."""
    least, noun = result["least_padding"], _COSTS.get(result["objective"], "cost")
    return (
        f"An epoch's batches take {result['cost']:,.6g} {noun}, {percent(least['gain'], 2)} less "
        f"than with the {least['num_buckets']} buckets of least padding "
        f"({percent(least['efficiency'], 2)} against {percent(result['efficiency'], 2)})."
    )


def what_optimal_means(result: dict[str, Any]) -> str:
    """What the boundaries are the best of, and what is known about better ones."""
    search, objective = result["search"], result["objective"]
    limits = result["limits"]
    most = limits["max_batch_size"]
    claim = (
        f"Optimal means the fewest {_COSTS.get(objective, objective)} with at most "
        f"{result['num_buckets']} buckets and batches of up to {limits['max_tokens']:,} padded "
        f"tokens" + (f" and {most:,} samples" if most else "")
    )
    if search["exhaustive"]:
        return f"{claim}: all {search['num_edges']:,} possible edges were weighed."
    finer = search["finer_grid_gain"]
    gap = (
        f"halving the spacing of the grid still won {percent(finer, 4)}"
        if finer
        else "halving the spacing of the grid won nothing more"
    )
    return (
        f"{claim}, on a grid of {search['num_edges']:,} edges; moving edges to single tokens won "
        f"another {percent(search['refinement_gain'], 4)}; {gap}."
    )


def _print_buckets(result: dict[str, Any]) -> None:
    rows = [
        (
            f"[{bucket['lo']:,}, {bucket['hi']:,})",
            f"{bucket['num_samples']:,}",
            f"{bucket['mean_length']:,.1f}",
            f"{bucket['batch_size']:,.1f}",
            f"{bucket['num_batches']:,.1f}",
            f"{bucket['padded_tokens']:,.0f}",
            percent(bucket["efficiency"], 2),
        )
        for bucket in result["buckets"]
    ]
    samples, batches = result["num_samples"], result["num_batches"]
    total = (
        "all",
        f"{samples:,}",
        f"{result['real_tokens'] / samples:,.1f}",
        f"{samples / batches:,.1f}",
        f"{batches:,.1f}",
        f"{result['padded_tokens']:,.0f}",
        percent(result["efficiency"], 2),
    )
    columns = ("bucket", "samples", "mean length", "batch size", "batches")
    print_table(
        "Buckets, as expected in an epoch",
        (*columns, "padded tokens", "efficiency"),
        [*rows, total],
    )


def _print_baselines(result: dict[str, Any]) -> None:
    rows = [_choice("these", result)]
    rows += [
        _choice(name.replace("_", " "), baseline) for name, baseline in result["baselines"].items()
    ]
    print_table(
        "Beside other boundaries",
        ("boundaries", "edges", "efficiency", "utilization", "batches"),
        rows,
        text_columns=2,
    )


def _choice(name: str, bucketing: dict[str, Any]) -> tuple[str, ...]:
    edges = bucketing["boundaries"]
    shown = " ".join(
        str(edge) for edge in (edges if len(edges) <= 9 else [*edges[:4], "...", edges[-1]])
    )
    return (
        name,
        shown,
        percent(bucketing["efficiency"], 2),
        percent(bucketing["utilization"], 2),
        f"{bucketing['num_batches']:,.0f}",
    )


def _print_curve(result: dict[str, Any]) -> None:
    curve = {entry["wanted"]: entry for entry in result["curve"]}
    shown = sorted({*(k for k in _CURVE_SHOWN if k in curve), result["recommended"], max(curve)})
    rows = []
    for number in shown:
        entry, half = curve[number], curve.get(number // 2) if number % 2 == 0 else None
        saved = "" if half is None else percent(1 - entry["cost"] / half["cost"])
        rows.append(
            (
                f"{number}{' *' if number == result['recommended'] else ''}",
                percent(entry["efficiency"], 2),
                percent(entry["utilization"], 2),
                f"{entry['num_batches']:,.0f}",
                saved,
            )
        )
    print_table(
        f"Best boundaries for each number of buckets (* recommended); "
        f"saved: {_COSTS.get(result['objective'], 'cost')}, against half as many buckets",
        ("buckets", "efficiency", "utilization", "batches", "saved"),
        rows,
    )
