"""Pipelines that ran, with imitated devices, beside the same pipelines simulated.

The pipeline is the product's own, with processes, messages and arena; only what devices take is
given (`pipeline_stages`). So the costs are known exactly, and what is compared is the model of the
pipeline alone.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from pipeline_stages import Stages, read_logs, stage_config, write_run_folder

from lengthwise.core.cost import StepTime
from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from lengthwise.pipeline.telemetry import RunFacts, Telemetry
from lengthwise.simulate import Machines, simulate, workload_of_remix
from lengthwise.simulate.builders import largest_parts

MAX_TOKENS = 4_096
SPLITS = ((1, 1), (2, 1), (1, 2))
SLOW, QUICK = 20.0, 10.0
"""Seconds that the stage which is to be the bottleneck needs for all its work, and the other."""
TARGET = StepTime(fixed_seconds=0.01, seconds_per_token=2e-5, seconds_per_token_squared=2e-8)
DRAFTER = StepTime(fixed_seconds=0.01, seconds_per_token=2e-5)


class Watcher:
    """Follows a pipeline as `lengthwise dflash train` does, and keeps what it found."""

    def __init__(self, facts):
        """Nothing found yet."""
        self.telemetry = Telemetry(facts, window_seconds=6.0)
        self.found = []

    def flowed(self, flow):
        """Judge."""
        self.telemetry.flowed(flow)
        if self.telemetry.bottleneck is not None:
            self.found.append(self.telemetry.bottleneck.kind)

    def stepped(self, _position, _result, facts):
        """Count."""
        self.telemetry.stepped(facts)

    def __getattr__(self, _name):
        """All else is of no interest."""
        return lambda *_arguments: None


def run_lengths(count, seed=0):
    """Lengths from 16 to 512 tokens, most of them short."""
    drawn = np.random.default_rng(seed).lognormal(np.log(90), 0.8, count)
    return np.clip(drawn, 16, 512).astype(np.int64)


def compare_runs(quick, repeats=3):
    """Every split with either stage as the bottleneck; medians over repeats."""
    repeats, count = (1, 300) if quick else (repeats, 3_000)
    with tempfile.TemporaryDirectory() as folder:
        data = write_run_folder(folder, run_lengths(count))
        return [
            compare_run(data, split, slow, repeats)
            for slow in ("targets", "drafter")
            for split in (SPLITS[:1] if quick else SPLITS)
        ]


def compare_run(data, split, slow, repeats):
    """One pipeline that runs, again and again, and its simulation."""
    setups = [set_up_pipeline(_config(data, split, f"{slow}{run}")) for run in range(repeats)]
    costs = costs_of(setups[0], split, slow)
    simulated = simulate_setup(setups[0], costs)
    runs = [run_setup(setup, costs) for setup in setups]
    measured = statistics.median(run["tokens_per_second"] for run in runs)
    return {
        "num_targets": split[0],
        "num_drafters": split[1],
        "slower": slow,
        "num_batches": simulated.workload.num_arrivals,
        "num_steps": simulated.workload.num_steps,
        "simulated": simulated.tokens_per_second,
        "measured": measured,
        "error": simulated.tokens_per_second / measured - 1,
        "first_step_begins": float(simulated.steps.begun[0]),
        "simulated_bottleneck": simulated.bottleneck.kind,
        "simulated_busy": {"target": simulated.target_busy, "drafter": simulated.drafter_busy},
        "runs": runs,
    }


def _config(data, split, name):
    return stage_config(
        data,
        Path(data, f"{name}-{split[0]}-{split[1]}"),
        workers=split[0],
        ranks=split[1],
        batching={"max_tokens": MAX_TOKENS, "max_batch_size": 64},
        remix={"pool_batches": 4, "mixed_batches": 2},
        step={"anchors_per_step": 1_024, "max_anchors": 32},
        pipeline={"prefetch_batches": 2 * split[0], "probe_rounds": 0},
    )


def costs_of(setup, split, slow):
    """What a batch and a rank's part of a step take, so that the stages need what they shall."""
    mix = setup.plan.epoch(0).mix
    parts = largest_parts(mix, setup.plan.data.lengths, split[1])
    target = TARGET(mix.arrivals.sizes, mix.arrivals.padded).sum() / split[0]
    drafter = DRAFTER(np.ones_like(parts), parts).sum()
    seconds = (SLOW, QUICK) if slow == "targets" else (QUICK, SLOW)
    return _times(TARGET, seconds[0] / target), _times(DRAFTER, seconds[1] / drafter)


def _times(cost, factor):
    return StepTime(**{name: factor * value for name, value in asdict(cost).items()})


def simulate_setup(setup, costs):
    """The same on paper."""
    token_bytes = setup.arena.feature_size * setup.arena.dtype.itemsize
    section = setup.config.pipeline
    workload = workload_of_remix(
        setup.plan.epoch(0).mix,
        setup.plan.data.lengths,
        *costs,
        bytes_per_token=token_bytes,
        num_drafters=len(section.drafter_devices),
        page_tokens=section.page_tokens,
    )
    machines = Machines(
        num_targets=len(section.target_devices),
        num_drafters=len(section.drafter_devices),
        channel_bytes=setup.arena.num_bytes,
    )
    return simulate(workload, machines)


def run_setup(setup, costs):
    """Run it, and look at when its devices worked."""
    watcher = Watcher(RunFacts.of(setup))
    entries = Stages(target=costs[0], drafter=costs[1]).entries
    run_pipeline(setup, None, watcher, entries)
    logs = read_logs(setup.config.output_dir)
    pieces = [piece for stage in logs.values() for piece in stage]
    began = min(piece[:, 0].min() for piece in pieces)
    seconds = max(piece[:, 1].max() for piece in pieces) - began
    busy = {
        stage: float(sum((one[:, 1] - one[:, 0]).sum() for one in own) / (len(own) * seconds))
        for stage, own in logs.items()
    }
    return {
        "tokens_per_second": setup.plan.data.num_tokens / seconds,
        "busy": busy,
        "first_step_begins": float(min(one[0, 0] for one in logs["drafter"]) - began),
        "bottleneck": statistics.mode(watcher.found) if watcher.found else None,
    }
