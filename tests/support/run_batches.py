"""Batches of the DFlash run's distribution, built with plain numpy and a plain loop.

Made without the package's planner, so that tests of order and diversity do not depend on it.
"""

from pathlib import Path

import numpy as np

HISTOGRAM = Path(__file__).parents[2] / "data" / "dflash_run_histogram.csv"
MAX_TOKENS = 49_152
MAX_BATCH_SIZE = 64


def run_lengths(every=1):
    """Lengths of the run, rising; ``every`` thins them out evenly."""
    rows = np.loadtxt(HISTOGRAM, delimiter=",", skiprows=1, dtype=np.int64)
    return np.repeat(rows[:, 0], rows[:, 1])[::every]


def windowed_order(lengths, window, rng):
    """Shuffle, then sort windows alternately rising and falling; window 1 only shuffles."""
    order = rng.permutation(lengths.size)
    for number, start in enumerate(range(0, lengths.size, window)):
        part = order[start : start + window]
        part = part[np.argsort(lengths[part], kind="stable")]
        order[start : start + window] = part if number % 2 == 0 else part[::-1]
    return order


def greedy_starts(lengths):
    """Where each batch begins when samples are packed in this order under the run's limits."""
    starts, size, longest = [0], 0, 0
    for place, length in enumerate(lengths.tolist()):
        longest, size = max(longest, length), size + 1
        if size > MAX_BATCH_SIZE or size * longest > MAX_TOKENS:
            starts.append(place)
            size, longest = 1, length
    return np.array(starts, np.int64)
