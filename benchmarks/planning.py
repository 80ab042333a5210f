"""How fast an epoch is planned, beside a bare greedy scan in the same run; and how much memory.

Each row runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
from floor import scan
from workloads import PUBLISHED, RUN_LIMITS, peak_bytes, run_lengths, summary, times

import lengthwise as lw

CONFIGS = {
    "pooled": {},
    "windowed": {"strategy": "windowed"},
    "bucketed": {"boundaries": PUBLISHED},
    "random": {"strategy": "random"},
    "sorted": {"strategy": "sorted"},
}
SIZES = (1_000_000, 100_000_000)


def measure(quick):
    """One row per size, strategy and number of threads."""
    rows = []
    for num_samples in SIZES[:1] if quick else SIZES:
        for strategy in CONFIGS:
            for num_threads in (1, 2):
                rows.append(_in_own_process(num_samples, strategy, num_threads))
                print(_line(rows[-1]), flush=True)
    rows.append(_in_own_process(SIZES[0] if quick else SIZES[1], "fixed", 2))
    print(_line(rows[-1]), flush=True)
    return {"rows": rows}


def _in_own_process(num_samples, strategy, num_threads):
    command = [sys.executable, __file__, str(num_samples), strategy, str(num_threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure_one(num_samples, strategy, num_threads):
    """Set-up, planning time, memory above the lengths, and the floor."""
    _warm_up(strategy, num_threads)
    lengths = run_lengths(num_samples)
    repeats = 7 if num_samples <= 2_000_000 else 2
    floor = min(times(lambda: scan(lengths), repeats))
    before = peak_bytes()
    started = time.perf_counter()
    planner = _planner(lengths, strategy, num_threads)
    setup = time.perf_counter() - started
    if strategy == "fixed":
        return {**_row(num_samples, strategy, num_threads, setup), **_fixed(planner)}
    epochs = iter(range(1, 1000))
    seconds = summary(times(lambda: planner.plan(next(epochs)), repeats))
    floor = min(floor, *times(lambda: scan(lengths), repeats))
    return {
        **_row(num_samples, strategy, num_threads, setup),
        **seconds,
        "million_samples_per_second": num_samples / seconds["median_seconds"] / 1e6,
        "floor_seconds": floor,
        "times_the_floor": seconds["median_seconds"] / floor,
        "bytes_per_sample": (peak_bytes() - before) / num_samples,
    }


def _row(num_samples, strategy, num_threads, setup):
    return {
        "num_samples": num_samples,
        "strategy": strategy,
        "num_threads": num_threads,
        "setup_seconds": setup,
    }


def _planner(lengths, strategy, num_threads):
    fields = CONFIGS.get(strategy, {"boundaries": PUBLISHED, "batch_sizing": "fixed"})
    config = lw.BatchingConfig(limits=RUN_LIMITS, **fields)
    return lw.Planner(lengths, config, num_replicas=8, num_threads=num_threads)


def _warm_up(strategy, num_threads):
    """Compile or load every kernel on a small data set, large enough for every code path."""
    planner = _planner(run_lengths(2_000_000), strategy, num_threads)
    planner.plan(0).batch(0)


def _fixed(planner):
    rng = np.random.default_rng(1)
    seconds = []
    for epoch in range(5):
        plan = planner.plan(epoch)
        for index in rng.integers(0, plan.num_batches, 1000):
            started = time.perf_counter()
            plan.batch(int(index))
            seconds.append(time.perf_counter() - started)
    return {
        "batch_median_microseconds": float(np.median(seconds)) * 1e6,
        "batch_p99_microseconds": float(np.quantile(seconds, 0.99)) * 1e6,
    }


def _line(row):
    head = f"{row['num_samples']:>11,} {row['strategy']:9} {row['num_threads']} threads"
    if row["strategy"] == "fixed":
        return (
            f"{head}: set-up {row['setup_seconds']:.2f} s, a batch "
            f"{row['batch_median_microseconds']:.1f} us (p99 {row['batch_p99_microseconds']:.1f})"
        )
    return (
        f"{head}: set-up {row['setup_seconds']:.2f} s, "
        f"{row['million_samples_per_second']:.1f} M/s, "
        f"{row['times_the_floor']:.1f} x floor, {row['bytes_per_sample']:.1f} bytes a sample"
    )


if __name__ == "__main__":
    print(json.dumps(measure_one(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
