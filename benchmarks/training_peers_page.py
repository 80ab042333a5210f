"""The section of docs/concepts/training.md on other libraries' batches, from the result file.

python benchmarks/training_peers_page.py     # writes it anew; `make bench` does so too
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
import pages
from pages import table
from training_page import PAGE, last_loss, spread, stdev_of
from training_plots import curve_plot, curves

from lengthwise.report.plots import render_plot

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "training_peers.json"
ENOUGH = 200_000
"""Real tokens of a run from which its losses are worth reading."""
LOOKS = {
    "pooled": ("lengthwise, default", "series-1", "circle", 0),
    "lhotse": ("Lhotse", "series-2", "square", 1),
    "speechbrain": ("SpeechBrain", "series-2", "triangle-up", 2),
    "fairseq": ("fairseq", "series-5", "cross", 4),
    "grouped_mean": ("HF group by length", "series-3", "triangle-down", 3),
    "rebalance": ("HF batch rebalance", "series-3", "diamond", 0),
    "axolotl": ("Axolotl (packs)", "series-4", "square", 2),
    "plain_mean": ("DataLoader", "series-4", "circle", 1),
}
"""Of the plots: name, colour, mark, number of the dashes."""


def loss_in_time(runs, name):
    """An arm's loss in the CPU time of the default's whole run; its last where it was done."""
    seconds, losses = ([p[key] for p in runs[name]["curve"]] for key in ("cpu_seconds", "loss"))
    return float(np.interp(runs["pooled"]["cpu_seconds"], seconds, losses))


def rows(found):
    """A row an arm."""
    seeds = found["runs"]
    for name in seeds[0]:
        losses = [last_loss(runs[name]) for runs in seeds]
        gaps = [last_loss(runs[name]) - last_loss(runs["pooled"]) for runs in seeds]
        speeds = [_speed(runs[name]) / _speed(runs["pooled"]) for runs in seeds]
        packed = seeds[0][name]["packed"]
        yield (
            found["labels"][name],
            f"{fmean(runs[name]['num_steps'] for runs in seeds):.0f}",
            "no padding" if packed else f"{fmean(runs[name]['efficiency'] for runs in seeds):.3f}",
            f"{fmean(runs[name]['over_share'] for runs in seeds):.0%}",
            spread(speeds, ".2f"),
            f"{fmean(losses):.3f} ± {stdev_of(losses):.3f}",
            "" if name == "pooled" else spread(gaps, "+.3f"),
            f"{fmean(loss_in_time(runs, name) for runs in seeds):.3f}",
        )


def _speed(run):
    return run["real_tokens"] / run["cpu_seconds"]


def parts(found):
    """Each part by its mark."""
    columns = (
        "batches by", "steps", "efficiency", "over the budget", "real tokens a CPU second",
        "held-out loss", "against the default", "loss in the default's time",
    )  # fmt: skip
    size = found["size"]
    text = (
        f"{size['num_tokens']:,} real tokens a run; seeds: {size['num_seeds']}; speeds are over "
        "the default's."
    )
    if size["num_tokens"] < ENOUGH:
        text += " A run this short checks that all runs, and says nothing about training."
    if found["missing"]:
        text += "\nNot run: " + "; ".join(
            f"{found['labels'][name]} (`{error}`)" for name, error in found["missing"].items()
        )
    return {"peers": f"{text}\n\n{table(columns, rows(found))}"}


def fill_page(found):
    """Write the table and the two plots."""
    pages.fill(PAGE, parts(found))
    looks = {name: look for name, look in LOOKS.items() if name in found["runs"][0]}
    points = curves(found["runs"], looks)
    plots = {
        "tokens": ("real_tokens", "real tokens seen"),
        "time": ("cpu_seconds", "CPU seconds, evaluation left out"),
    }
    for name, (key, title) in plots.items():
        path = ROOT / "docs" / "images" / f"training-peers-{name}.svg"
        path.write_text(render_plot(curve_plot(points, key, title, looks)), encoding="utf-8")


if __name__ == "__main__":
    fill_page(pages.result(RESULT))
