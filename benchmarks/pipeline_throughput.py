"""What a pipeline costs: its throughput beside that of its slowest stage alone in a bare loop.

With imitated devices, several of each kind at several ratios; `pipeline_real` has real models. The
steady state counts: the slowest stage from its first piece of work to its last. How long the pool
takes to fill and to empty is stated beside.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pipeline_strategies
from pipeline_stages import Stages, stage_config, write_run_folder
from pipeline_timing import timed_run
from workloads import run_lengths

from lengthwise.core.cost import StepTime

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
SAMPLES, BATCH_TOKENS = 600, 16_384


def measure(quick):
    """All of it; seconds are of this machine, shares are what counts."""
    with tempfile.TemporaryDirectory() as place:
        return {
            "imitated": overheads(Path(place, "imitated"), quick),
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
