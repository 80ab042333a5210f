"""How far off was the original run's model of padding?

python benchmarks/original_model.py

The run chose its boundaries by coordinate descent on this model: a bucket's batches have one fixed
size n, the largest whose expected longest of n draws fits the budget, and are padded to it. Here
the model is built again from that description and set against the exact expectation and packed
epochs, for the published boundaries and for the ones that its own descent finds.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from workloads import HAND_PICKED, PUBLISHED, RUN_LIMITS, run_histogram, run_lengths

import lengthwise as lw

EPOCHS = 5


def bucket_model(lengths, counts):
    """Fixed batch size, and expected longest of so many draws, of one bucket."""
    share = np.cumsum(counts) / counts.sum()
    below = np.concatenate([[0.0], share[:-1]])
    for size in range(RUN_LIMITS.max_batch_size, 0, -1):
        longest = float(np.sum(lengths * (share**size - below**size)))
        if size * longest <= RUN_LIMITS.max_tokens:
            return size, longest
    return 1, float(np.sum(lengths * (share - below)))


def model(histogram, boundaries):
    """Padded tokens and batches as the model sees them."""
    padded = batches = 0.0
    for lo, hi in pairwise(boundaries):
        part = histogram.between(lo, hi)
        size, longest = bucket_model(part.lengths, part.counts)
        padded += part.num_samples * longest
        batches += part.num_samples / size
    return padded, batches


def descend(histogram, boundaries):
    """Move one edge after the other while the model's padding falls; steps 256 down to 1."""
    edges = list(boundaries)
    best = model(histogram, edges)[0]
    step = 256
    while step:
        moved = False
        for at in range(1, len(edges) - 1):
            for shift in (-step, step):
                trial = edges.copy()
                trial[at] += shift
                if not trial[at - 1] < trial[at] < trial[at + 1]:
                    continue
                padded = model(histogram, trial)[0]
                if padded < best:
                    edges, best, moved = trial, padded, True
        if not moved:
            step //= 2
    return tuple(edges)


def simulated(lengths, boundaries):
    """Mean efficiency and batches of packed epochs."""
    config = lw.BatchingConfig(limits=RUN_LIMITS, boundaries=boundaries, order="shuffled")
    planner = lw.Planner(lengths, config)
    stats = [planner.plan(epoch).stats for epoch in range(EPOCHS)]
    return (
        sum(stat.efficiency for stat in stats) / EPOCHS,
        sum(stat.num_batches for stat in stats) / EPOCHS,
    )


def main():
    """Print the tables of docs/concepts/boundaries.md."""
    histogram, lengths = run_histogram(), run_lengths()
    tokens = histogram.num_tokens
    rows = {
        "hand-picked": HAND_PICKED,
        "published": PUBLISHED,
        "coordinate descent on the model": descend(histogram, HAND_PICKED),
        "ours": lw.optimize_boundaries(histogram, RUN_LIMITS, 6).boundaries,
    }
    print(
        "| boundaries | its model | exact | packed | batches: its model | exact | packed |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name, boundaries in rows.items():
        padded, batches = model(histogram, boundaries)
        exact = lw.evaluate_boundaries(histogram, RUN_LIMITS, boundaries)
        efficiency, packed = simulated(lengths, boundaries)
        print(
            f"| {name}: {' '.join(map(str, boundaries))} | {tokens / padded:.4f} | "
            f"{exact.efficiency:.4f} | {efficiency:.4f} | {batches:,.0f} | "
            f"{exact.num_batches:,.0f} | {packed:,.0f} |"
        )
    print("\n| published bucket | its model | exact |\n|---|---|---|")
    exact = lw.evaluate_boundaries(histogram, RUN_LIMITS, PUBLISHED)
    for bucket in exact.buckets:
        part = histogram.between(bucket.lo, bucket.hi)
        size, longest = bucket_model(part.lengths, part.counts)
        print(
            f"| [{bucket.lo:,}, {bucket.hi:,}) | {part.mean / longest:.4f}, size {size} | "
            f"{bucket.efficiency:.4f}, size {bucket.batch_size:.1f} |"
        )
    print(
        "\n| lengths | buckets | its model | exact | packed | batches: its model | exact | "
        "packed |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    rng = np.random.default_rng(0)
    wide = np.clip(rng.lognormal(6.5, 1.1, 900_000), 8, 8191).astype(np.int64)
    for name, sample in (("the run's", lengths), ("lognormal(6.5, 1.1)", wide)):
        hist = lw.LengthHistogram.from_lengths(sample)
        for number in (1, 2, 3, 6):
            best = lw.optimize_boundaries(hist, RUN_LIMITS, number)
            padded, batches = model(hist, best.boundaries)
            efficiency, packed = simulated(sample, best.boundaries)
            print(
                f"| {name} | {number} | {hist.num_tokens / padded:.4f} | {best.efficiency:.4f} | "
                f"{efficiency:.4f} | {batches:,.0f} | {best.num_batches:,.0f} | {packed:,.0f} |"
            )


if __name__ == "__main__":
    main()
