"""The simulation of a pipeline: how quick it is, and how near to pipelines that run.

Quick: a recurrence, compiled, against the same model in simpy, event by event; both give the same
times. Near: real pipelines whose devices are imitated, so that their costs are known exactly.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pages
from simulation_runs import compare_runs
from workloads import PUBLISHED, RUN_LIMITS, run_lengths, summary, times

import lengthwise as lw
from lengthwise.core.cost import StepTime
from lengthwise.simulate import Machines, best_split, simulate, workload_of_batches

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.simpy_pipeline import PipelineModel

TARGET = StepTime(fixed_seconds=0.1, seconds_per_token=1e-4, seconds_per_token_squared=2e-8)
DRAFTER = StepTime(fixed_seconds=0.2, seconds_per_token=1e-5)
BYTES_PER_TOKEN = 51_200
PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "simulation.md"
SPLIT = (6, 2)
MANY_DEVICES = (64, 512, 4_096)


def measure(quick):
    """All figures; ``quick`` takes a few batches, and one pipeline."""
    lengths = run_lengths(20_000 if quick else None)
    config = lw.BatchingConfig(limits=RUN_LIMITS, boundaries=PUBLISHED)
    batches = lw.Planner(lengths, config).plan(0).batches
    found = {"speed": speed(batches, quick), "splits": splits(batches, quick)}
    print(f"an epoch: {found['speed']}")
    found["pipelines"] = compare_runs(quick)
    for one in found["pipelines"]:
        print(
            f"{one['num_targets']} + {one['num_drafters']}, {one['slower']} slower: simulated "
            f"{one['simulated']:,.0f} tokens/s, measured {one['measured']:,.0f} "
            f"({one['error']:+.1%}); {one['simulated_bottleneck']} named"
        )
    found["worst_error"] = max(abs(one["error"]) for one in found["pipelines"])
    return found


def fill_page(found):
    """Put the table into the concept's page, between its markers."""
    pages.fill(PAGE, {"measured": table(found)})


def table(found):
    """Simulated beside measured, in Markdown."""
    lines = [
        "| targets + drafters | slower | measured tokens/s | simulated | | bottleneck named |",
        "|---|---|---:|---:|---:|---|",
    ]
    for one in found["pipelines"]:
        named = ", ".join(sorted({str(run["bottleneck"]) for run in one["runs"]}))
        lines.append(
            f"| {one['num_targets']} + {one['num_drafters']} | {one['slower']} | "
            f"{one['measured']:,.0f} | {one['simulated']:,.0f} | {one['error']:+.1%} | "
            f"{one['simulated_bottleneck']}; by the run itself: {named} |"
        )
    return "\n".join(lines)


def workload_for(batches):
    """What passes through a pipeline in which the drafter learns from the target's batches."""

    def make(_num_targets, num_drafters):
        return workload_of_batches(
            batches, TARGET, DRAFTER,
            bytes_per_token=BYTES_PER_TOKEN, batches_per_step=num_drafters, feed_seconds=0.05,
        )  # fmt: skip

    return make


def machines_for(workload):
    """What it passes through."""
    return Machines(
        num_targets=SPLIT[0],
        num_drafters=SPLIT[1],
        channel_bytes=workload.channel_bytes(2 * SPLIT[0]),
        transfer_bytes_per_second=25e9,
    )


def speed(batches, quick):
    """An epoch on eight devices: from the plan to all figures, and the same events in simpy."""
    make = workload_for(batches)

    def ours():
        workload = make(*SPLIT)
        return simulate(workload, machines_for(workload)).to_dict()

    began = time.perf_counter()
    ours()
    first = time.perf_counter() - began
    workload = make(*SPLIT)
    machines = machines_for(workload)

    def theirs():
        return PipelineModel(workload, machines).run()

    seconds = {"ours": times(ours, 1 if quick else 9), "simpy": times(theirs, 1 if quick else 3)}
    ended = theirs().learnt
    assert np.allclose(simulate(workload, machines).steps.learnt, ended, rtol=1e-12)
    return {
        "num_batches": workload.num_arrivals,
        "num_devices": sum(SPLIT),
        "first_call_seconds": first,
        **{name: summary(taken) for name, taken in seconds.items()},
    }


def splits(batches, quick):
    """Finding the best split of many devices."""
    found = []
    for num_devices in MANY_DEVICES[:1] if quick else MANY_DEVICES:
        workload = workload_for(batches)(1, 1)
        machines = Machines(num_targets=1, channel_bytes=workload.channel_bytes(3 * num_devices))
        began = time.perf_counter()
        best = best_split(workload_for(batches), num_devices, machines).best
        found.append(
            {
                "num_devices": num_devices,
                "seconds": time.perf_counter() - began,
                "num_targets": best.machines.num_targets,
                "tokens_per_second": best.tokens_per_second,
            }
        )
    return found
