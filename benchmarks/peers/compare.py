"""All peers on all data sets, one process after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from peers.arms import ARMS
from peers.datasets import DATASETS, load

BENCHMARKS = Path(__file__).parents[1]
INSTALLED = BENCHMARKS.parent / "out" / "peers" / "bin" / "python"
"""The environment that ``make peers`` makes, apart from the project's own."""
PATIENCE = 900
"""Seconds for one peer on one data set."""


def interpreter():
    """The Python that has the peers: as said, as made by ``make peers``, or this one."""
    named = os.environ.get("LENGTHWISE_PEERS_PYTHON")
    return named or (str(INSTALLED) if INSTALLED.exists() else sys.executable)


def measure(quick):
    """Rows of every data set by arm; an arm that does not run has an ``error``."""
    found = {}
    for name in ["run"] if quick else DATASETS:
        case = load(name, quick=quick)
        print(f"\n{name}: {case.lengths.size:,} samples, at most {case.max_tokens:,} tokens")
        rows = {}
        for arm in ARMS:
            rows[arm] = ask(arm, name, *(["--quick"] if quick else []))
            print(_line(arm, rows[arm]), flush=True)
        found[name] = {**_about(case), "rows": rows}
    missing = [arm for arm, row in found["run"]["rows"].items() if "error" in row]
    print(f"\n{len(ARMS) - len(missing)} of {len(ARMS)} ran; not: {', '.join(missing) or 'none'}")
    return {"datasets": found, "labels": {name: arm.label for name, arm in ARMS.items()}}


def ask(arm, *arguments):
    """What ``peers.measure_one`` prints, or the error that it ends with."""
    command = [interpreter(), "-W", "ignore", "-m", "peers.measure_one", arm, *arguments]
    paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {PATIENCE} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _about(case):
    about = asdict(case)
    lengths = about.pop("lengths")
    return {
        **about,
        "num_samples": int(lengths.size),
        "mean_length": float(lengths.mean()),
        "longest": case.longest,
        "safe_size": case.safe_size,
        "mean_size": case.mean_size,
    }


def _line(arm, row):
    if "error" in row:
        return f"{arm:13} not run: {row['error']}"
    return (
        f"{arm:13} efficiency {row['efficiency']:.4f}  {row['num_batches']:>6,} batches  "
        f"{row['over_share']:6.1%} over  repeats {row['repeat_rate']:.5f}  "
        f"order {row['order_correlation']:+.2f}  {row['samples_per_second']:>12,.0f} samples/s  "
        f"resume {row['resume']['kind']} {row['resume']['seconds']:.2f} s"
        f"{'' if row['resume']['exact'] else ', not exact'}"
    )
