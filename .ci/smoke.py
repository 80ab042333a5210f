"""Plan an epoch with the installed package, as a first user would; leaves lengths.npy behind.

    python smoke.py SOURCE_TREE

Fails where ``lengthwise`` is imported from SOURCE_TREE instead of the installation, or where the
plan does not cover every sample once within the limits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import lengthwise as lw


def main() -> None:
    """Check where the package stands, then plan."""
    here, sources = Path(lw.__file__).resolve(), Path(sys.argv[1]).resolve()
    if here.is_relative_to(sources):
        sys.exit(f"lengthwise was imported from the sources: {here}")
    lengths = np.random.default_rng(0).geometric(0.01, size=20_000).clip(1, 4096)
    np.save("lengths.npy", lengths)
    limits = lw.BatchLimits(max_tokens=8192, max_batch_size=64)
    best = lw.optimize_boundaries(lw.LengthHistogram.from_lengths(lengths), limits, num_buckets=4)
    config = lw.BatchingConfig(limits=limits, boundaries=best.boundaries, seed=0)
    plan = lw.build_plan(lengths, config, epoch=1, num_replicas=2)
    seen = np.zeros(lengths.size, np.int64)
    for index in range(plan.num_batches):
        members = plan.batch(index)
        seen[members] += 1
        if len(members) > 64 or len(members) * int(lengths[members].max()) > 8192:
            sys.exit(f"batch {index} breaks the limits")
    if plan.num_batches % 2 or int(seen.max()) > 1 or int(seen.sum()) < lengths.size - 64:
        sys.exit("the plan does not cover every sample once in equal shares")
    python = ".".join(str(part) for part in sys.version_info[:3])
    print(f"lengthwise {lw.__version__}, Python {python}, numpy {np.__version__}")
    print(f"{plan.num_batches:,} batches, expected efficiency {best.efficiency:.4f}")


if __name__ == "__main__":
    main()
