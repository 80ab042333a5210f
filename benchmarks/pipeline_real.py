"""What a pipeline costs with small real models: one target worker and one rank, a core each.

Two figures, for two cores of a machine are not two machines: they share its caches, its memory and
what the system does beside. So the slowest stage in the pipeline is compared with its bare loop on
the idle machine, and with its bare loop beside the other stage's, in two processes that have
nothing to do with each other. What lies between these two no pipeline could have.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from pipeline_models import (
    both_at_once,
    drafter_alone,
    functions_config,
    target_alone,
    write_functions,
)
from pipeline_stages import Stages
from pipeline_timing import timed_run

from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import load_data

ROUNDS = 5
STAGES = ("target", "drafter")


def measure(quick):
    """Each stage alone, both at once, and the pipeline, in turns; the least counts.

    Nothing else can make a stage faster than it is alone; so the least of several is the truest.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        write_functions(place, 100 if quick else 600)
        config = functions_config(place, Path(place, "out"))
        rows = [real_round(config) for _ in range(1 if quick else ROUNDS)]
    found = shares_of(rows)
    print(
        f"the {found['slowest']} is slowest: {100 * found['share']:.1f} % of it alone, "
        f"{100 * found['share_beside']:.1f} % of it beside the other"
    )
    return found


def real_round(config):
    """Seconds of each stage alone, beside the other, and in the pipeline."""
    plan = TrainingPlan(load_data(config), config)
    found = {
        "target_alone": target_alone(config, plan),
        "drafter_alone": drafter_alone(config, plan),
    }
    found |= {f"{name}_beside": seconds for name, seconds in both_at_once(config).items()}
    timing = timed_run(config, Stages())
    for name in STAGES:
        found[f"{name}_span"] = getattr(timing, name).span_seconds
        found[f"{name}_busy"] = getattr(timing, name).busy_seconds
    return {**found, "whole": timing.whole_seconds, "fill": timing.fill_seconds}


def shares_of(rows):
    """The least of every time over all rounds, and what the slowest stage keeps of its pace."""
    least = {name: min(row[name] for row in rows) for name in rows[0]}
    slowest = max(STAGES, key=lambda name: least[f"{name}_alone"])
    span = least[f"{slowest}_span"]
    return {
        **least,
        "slowest": slowest,
        "share": least[f"{slowest}_alone"] / span,
        "share_beside": least[f"{slowest}_beside"] / span,
        "busy_share": max(row[f"{slowest}_busy"] / row[f"{slowest}_span"] for row in rows),
        "rounds": rows,
    }
