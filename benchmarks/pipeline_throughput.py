"""What a pipeline costs: its throughput beside that of its slowest stage alone in a bare loop.

With imitated devices, several of each kind at several ratios, and with small real models, one
target worker and one drafter rank on a core each. The steady state counts: the slowest stage from
its first piece of work to its last. How long the pool takes to fill and to empty is stated beside.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pipeline_strategies
import torch
from pipeline_models import drafter_alone, functions_config, target_alone, write_functions
from pipeline_stages import Stages, stage_config, write_run_folder
from pipeline_timing import timed_run
from workloads import run_lengths

from lengthwise.core.cost import StepTime
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import load_data

CASES = (
    # target workers, drafter ranks, microseconds a token of one device of each
    (1, 1, 6.0, 3.0),
    (1, 1, 6.0, 6.0),
    (1, 1, 3.0, 6.0),
    (2, 1, 12.0, 5.0),
    (2, 1, 6.0, 6.0),
    (1, 2, 3.0, 12.0),
    (1, 2, 6.0, 6.0),
)
SAMPLES, BATCH_TOKENS, ROUNDS = 600, 16_384, 3


def measure(quick):
    """All of it; seconds are of this machine, shares are what counts."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        return {
            "imitated": overheads(Path(place, "imitated"), quick),
            "real": real_overhead(Path(place, "real"), quick),
            **pipeline_strategies.measure(Path(place), quick),
        }


def overheads(folder, quick):
    """A row a case, with devices that are imitated; the last over two epochs."""
    write_run_folder(folder, run_lengths(150 if quick else SAMPLES))
    cases = [(*case, 1) for case in CASES[: 2 if quick else None]] + [(1, 1, 6.0, 5.0, 2)]
    return [imitated_row(folder, *case) for case in cases]


def imitated_row(folder, workers, ranks, target, drafter, epochs):
    """One pipeline of imitated devices."""
    config = stage_config(
        folder, folder / "out", workers=workers, ranks=ranks, epochs=epochs,
        batching={"max_tokens": BATCH_TOKENS},
    )  # fmt: skip
    costs = [StepTime(seconds_per_token=one * 1e-6) for one in (target, drafter)]
    found = timed_run(config, Stages(*costs))
    print(f"{workers}+{ranks} at {target}:{drafter}, {epochs} epochs: {100 * found.share:.1f} %")
    return {
        "workers": workers,
        "ranks": ranks,
        "target_microseconds": target,
        "drafter_microseconds": drafter,
        "epochs": epochs,
        **found.to_dict(),
    }


def real_overhead(folder, quick):
    """Small models of this machine: each stage alone and the pipeline, in turns; the least counts.

    Nothing else can make a stage faster than it is alone; so the least of several is the truest.
    """
    write_functions(folder, 100 if quick else 600)
    config = functions_config(folder, folder / "out")
    rows = [real_round(config) for _ in range(1 if quick else ROUNDS)]
    least = {name: min(row[name] for row in rows) for name in rows[0]}
    alone = {name: least[f"{name}_alone"] for name in ("target", "drafter")}
    slowest = max(alone, key=alone.__getitem__)
    share = alone[slowest] / least[f"{slowest}_span"]
    print(f"real models, the {slowest} is slowest: {100 * share:.1f} %")
    return {
        **least,
        "slowest": slowest,
        "share": share,
        "busy_share": max(row[f"{slowest}_busy"] / row[f"{slowest}_span"] for row in rows),
        "rounds": rows,
    }


def real_round(config):
    """Seconds of each stage alone, and in the pipeline."""
    plan = TrainingPlan(load_data(config), config)
    found = {
        "target_alone": target_alone(config, plan),
        "drafter_alone": drafter_alone(config, plan),
    }
    timing = timed_run(config, Stages())
    for name in ("target", "drafter"):
        found[f"{name}_span"] = getattr(timing, name).span_seconds
        found[f"{name}_busy"] = getattr(timing, name).busy_seconds
    return {**found, "whole": timing.whole_seconds, "fill": timing.fill_seconds}
