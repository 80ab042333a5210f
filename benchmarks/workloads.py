"""The lengths that benchmarks run on, the clock they use, and what machine it was."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import lengthwise as lw
from lengthwise.calibrate.calibration import processor

HISTOGRAM = Path(__file__).parents[1] / "data" / "dflash_run_histogram.csv"
RUN_LIMITS = lw.BatchLimits(max_tokens=49_152, max_batch_size=64)
PUBLISHED = (0, 770, 1216, 1728, 2432, 3296, 8192)
HAND_PICKED = (0, 512, 1024, 2048, 3072, 4096, 8192)


def run_histogram():
    """The DFlash run's distribution: synthetic, rebuilt from its published statistics."""
    return lw.load_histogram(HISTOGRAM)


def run_lengths(num_samples=None, seed=0):
    """The run's lengths in random order; another number of samples is drawn from them."""
    lengths = run_histogram().to_lengths()
    rng = np.random.default_rng(seed)
    if num_samples is None:
        return rng.permutation(lengths)
    return rng.choice(lengths, num_samples)


def times(function, repeats):
    """Seconds of each call, after one that is not counted."""
    function()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return seconds


def summary(seconds):
    """Least, median and most."""
    return {
        "min_seconds": min(seconds),
        "median_seconds": statistics.median(seconds),
        "max_seconds": max(seconds),
    }


def peak_bytes():
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def machine():
    """Where and with what this was measured."""
    packages = ("lengthwise", "numpy", "numba", "pyarrow")
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
