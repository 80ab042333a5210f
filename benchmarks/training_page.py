"""The tables, sentences and plots of docs/concepts/training.md, from the benchmark's result.

python benchmarks/training_page.py     # writes them anew from benchmarks/results/training.json
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pages
import training_plots

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "training.json"
PAGE = ROOT / "docs" / "concepts" / "training.md"
NAMES = {
    "sorted": "sorted, frozen",
    "bucketed": "six best buckets",
    "windowed": "windows of 256",
    "pooled": "**pool (default)**",
    "random": "random",
    "random_pairs": "random, two batches a step",
}
TARGET = 0.97
ORDERS = ("random", "shuffled", "stratified", "balanced")


def main():
    """Write the page's generated parts and its plots."""
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    fill_page(document["result"], document["machine"])


def fill_page(found, machine):
    """Replace what stands between the page's markers, and draw the plots."""
    pages.fill(PAGE, parts(found, machine))
    training_plots.draw(found, ROOT / "docs" / "images")


def parts(found, machine):
    """Every generated part of the page by its marker's name."""
    return {
        "setting": setting(found, machine),
        "speed": speed_table(found),
        "speed-found": speed_sentence(found),
        "loss": loss_table(found),
        "loss-found": loss_sentence(found),
        "noise": noise_table(found),
        "noise-found": noise_sentence(found),
    }


def print_summary(found):
    """What the page says, without its marks, for the terminal."""
    tables = [speed_table(found), speed_sentence(found), loss_table(found), loss_sentence(found)]
    if found["size"]["num_seeds"] == 1:
        print("Sizes this small check that all runs, and say nothing about training.\n")
    print("\n\n".join([*tables, noise_table(found), noise_sentence(found)]))


def setting(found, machine):
    size, corpus, limits = found["size"], found["corpus"], found["limits"]
    counts = sorted({run["pooled"]["num_steps"] for run in found["runs"]})
    steps = " and ".join(str(row["step"]) for row in found["noise"][0])
    return (
        f"- {corpus['num_training']:,} functions to train on, {corpus['mean_length']:.0f} bytes on "
        f"average, {corpus['share_cut']:.0%} of them cut at 768; {corpus['num_held_out']} "
        f"functions ({corpus['num_held_out_tokens']:,} bytes) of files held out by the hash of "
        f"their name.\n"
        f"- {found['num_parameters']:,} parameters; batches of at most {limits['max_tokens']:,} "
        f"padded tokens and {limits['max_batch_size']} samples; AdamW with a peak learning rate of "
        f"{found['learning_rate']:g}, the same for all.\n"
        f"- {size['num_seeds']} seeds, of weights and plans alike. A run is "
        f"{size['num_samples']:,} samples: {' or '.join(map(str, counts))} steps of the default. "
        f"Gradients are measured after {steps} steps of it, on "
        f"{size['num_gradient_batches']} batches.\n"
        f"- {machine['processor']}, {machine['cores']} cores, one thread a process, "
        f"{size['num_processes']} processes; Python {machine['python']}, torch {found['torch']}, "
        f"lengthwise {machine['lengthwise']}."
    )


def of_runs(found, name, value):
    """``value(run, sorted's run)`` of a strategy for every seed."""
    return [value(runs[name], runs["sorted"]) for runs in found["runs"]]


def efficiency(run, _):
    return run["real_tokens"] / run["padded_tokens"]


def speed(clock):
    """Real tokens a second over sorted's, by ``cpu`` or ``wall`` clock."""
    key = f"{clock}_seconds"
    return lambda run, base: (run["real_tokens"] / run[key]) / (base["real_tokens"] / base[key])


def last_loss(run, _=None):
    return run["curve"][-1]["loss"]


def against(found, name, other):
    """Difference of the last held-out losses, seed by seed."""
    return [last_loss(runs[name]) - last_loss(runs[other]) for runs in found["runs"]]


def spread(values, form):
    """Mean, and least to most."""
    return f"{fmean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def speed_table(found):
    columns = ("batches", "efficiency", "real tokens a CPU second", "a second on the clock")
    rows = []
    for name, label in NAMES.items():
        speeds = [of_runs(found, name, speed(clock)) for clock in ("cpu", "wall")]
        mean = fmean(of_runs(found, name, efficiency))
        rows.append((label, f"{mean:.3f}", *(spread(one, ".3f") for one in speeds)))
    return pages.table(columns, rows)


def speed_sentence(found):
    cpu, wall = (
        [speed(clock)(times["pooled"], times["sorted"]) for times in found["speed"]]
        for clock in ("cpu", "wall")
    )
    padding = fmean(of_runs(found, "pooled", efficiency)) / fmean(
        of_runs(found, "sorted", efficiency)
    )
    verdict = "reached" if fmean(cpu) >= TARGET else "missed"
    random = fmean(of_runs(found, "random", speed("cpu")))
    return (
        f"The default runs at {spread(cpu, '.1%')} of sorted's speed by CPU time and at "
        f"{spread(wall, '.1%')} by the clock; its padding alone would make it {padding:.1%}. The "
        f"target, {TARGET:.0%} by CPU time, is {verdict}. Random batches run at {random:.0%}."
    )


def loss_table(found):
    columns = (
        "batches", "steps", "real tokens", "held-out loss", "against the default", "CPU time",
    )  # fmt: skip
    rows = []
    for name, label in NAMES.items():
        steps = fmean(of_runs(found, name, lambda run, _: run["num_steps"]))
        tokens = fmean(of_runs(found, name, lambda run, _: run["real_tokens"]))
        losses = of_runs(found, name, last_loss)
        seconds = fmean(of_runs(found, name, lambda run, b: run["cpu_seconds"] / b["cpu_seconds"]))
        gap = "" if name == "pooled" else spread(against(found, name, "pooled"), "+.3f")
        loss = f"{fmean(losses):.3f} ± {stdev_of(losses):.3f}"
        rows.append((label, f"{steps:.0f}", f"{tokens:,.0f}", loss, gap, f"{seconds:.2f}"))
    return pages.table(columns, rows)


def stdev_of(values):
    return stdev(values) if len(values) > 1 else 0.0


def loss_in_time(runs, name):
    """A strategy's loss when it has had the CPU time of the default's whole run; interpolated."""
    points = runs[name]["curve"]
    seconds, losses = ([point[key] for point in points] for key in ("cpu_seconds", "loss"))
    return float(np.interp(runs["pooled"]["cpu_seconds"], seconds, losses))


def loss_sentence(found):
    pairs = against(found, "pooled", "random_pairs")
    alone = against(found, "pooled", "random")
    means = [fmean(of_runs(found, name, last_loss)) for name in list(NAMES)[:4]]
    final = fmean(of_runs(found, "pooled", last_loss))
    one, two = (
        fmean(loss_in_time(runs, name) for runs in found["runs"])
        for name in ("random", "random_pairs")
    )
    return (
        f"The means of the four strategies by length lie within {max(means) - min(means):.3f} nats "
        f"a byte of each other. The default's loss minus that of random batches, two a step, is "
        f"{spread(pairs, '+.3f')}; minus that of random batches, one a step, "
        f"{spread(alone, '+.3f')}. In the CPU time in which the default comes to {final:.3f}, "
        f"random batches come to {one:.3f} with one a step and to {two:.3f} with two, not yet at "
        f"the low end of their learning rate."
    )


def noise_rows(found):
    """For every checkpoint and group size: its step, the size, and rows of all seeds by order."""
    for place, first in enumerate(found["noise"][0]):
        for group in first["groups"]:
            rows = [checkpoints[place]["groups"][group] for checkpoints in found["noise"]]
            yield first["step"], int(group), {n: [row[n] for row in rows] for n in ORDERS}


def noise_table(found):
    columns = ["step", "G", *(f"noise, {order}" for order in ORDERS[1:])]
    columns += [f"loss sd, {order}" for order in ORDERS]
    lines = []
    for step, group, rows in noise_rows(found):
        noise = [spread([r["gradient_noise"] for r in rows[n]], ".2f") for n in ORDERS[1:]]
        losses = [f"{fmean(r['loss_std'] for r in rows[n]):.3f}" for n in ORDERS]
        lines.append((step, group, *noise, *losses))
    return pages.table(columns, lines)


def by_order(rows, key, form):
    """Means over the seeds of one number of the three orders, in words."""
    means = {order: fmean(row[key] for row in rows[order]) for order in ORDERS[1:]}
    return ", ".join(f"{mean:{form}} {order}" for order, mean in means.items())


def noise_sentence(found):
    sentences = [
        f"With 8 batches a step, after {step} steps, relative to random batches: gradient noise a "
        f"token {by_order(rows, 'gradient_noise', '.2f')}; loss noise a token "
        f"{by_order(rows, 'loss_noise', '.2f')}."
        for step, group, rows in noise_rows(found)
        if group == 8
    ]
    effects = found["corpus"]["length_design_effect"]
    sentences.append(
        "For comparison, the design effect of length with 8 batches a step: "
        + ", ".join(f"{value:.2g} {order}" for order, value in effects.items())
        + "."
    )
    alone = [row["single_samples"] for checkpoints in found["noise"] for row in checkpoints]
    sentences.append(
        f"Single samples drawn at random have {spread(alone, '.2f')} times the noise a token of "
        f"random batches."
    )
    return "\n".join(re.sub(r"^", "- ", sentence) for sentence in sentences)


if __name__ == "__main__":
    main()
