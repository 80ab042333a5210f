"""How many buckets, and where: the best boundaries beside the usual rules.

python examples/02_choose_buckets.py
"""

from __future__ import annotations

from pathlib import Path

import lengthwise as lw
from lengthwise.core.baselines import compare_baselines

HISTOGRAM = Path(__file__).parents[1] / "data" / "dflash_run_histogram.csv"


def main() -> None:
    """The curve over the number of buckets, then six of them."""
    hist = lw.load_histogram(HISTOGRAM)
    limits = lw.BatchLimits(max_tokens=49_152, max_batch_size=64)

    curve = lw.optimize_curve(hist, limits, max_buckets=32)
    for number in (1, 2, 4, 8, 16, 32):
        found = curve.bucketings[number - 1]
        print(f"{number:2} buckets: {found.efficiency:.1%} real tokens")
    print(f"recommended: {curve.recommended}, since {curve.reason}")

    best = lw.optimize_boundaries(hist, limits, num_buckets=6)
    print(f"six best: {best.efficiency:.1%}, boundaries {best.boundaries}")
    for name, other in compare_baselines(hist, limits, 6).items():
        print(f"  {name}: {other.efficiency:.1%}")
        assert best.efficiency >= other.efficiency


if __name__ == "__main__":
    main()
