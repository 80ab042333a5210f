"""What padding costs on some lengths, and the plan of an epoch that wastes little.

python examples/01_plan_lengths.py
"""

from __future__ import annotations

import numpy as np

import lengthwise as lw

NUM_REPLICAS = 8


def main() -> None:
    """Compare, plan, look at one batch."""
    # One whole number a sample; read_lengths also takes Parquet, JSONL, CSV, .npy, data sets.
    rng = np.random.default_rng(0)
    lengths = lw.read_lengths(rng.lognormal(5.5, 1.0, 50_000).astype(int).clip(16, 4096))
    limits = lw.BatchLimits(max_tokens=16_384, max_batch_size=128)

    strategies = lw.compare_strategies(lengths, limits, frontier=False).to_dict()["strategies"]
    for name, row in strategies.items():
        print(f"{name:10} {row['efficiency']:6.1%} real tokens in {row['num_batches']:,} batches")

    plan = lw.build_plan(
        lengths, lw.BatchingConfig(limits=limits), epoch=0, num_replicas=NUM_REPLICAS
    )
    first = lengths[plan.batch(0)]
    print(f"the default plan: {plan.stats.efficiency:.1%}, {plan.num_steps:,} steps")
    print(f"its first batch: {len(first)} samples of {first.min()} to {first.max()} tokens")
    assert len(first) * first.max() <= limits.max_tokens


if __name__ == "__main__":
    main()
