"""Speech: batches of so many seconds, padded to one of eight lengths, for compiled models.

python examples/11_speech_buckets.py
"""

from __future__ import annotations

import numpy as np

import lengthwise as lw
from lengthwise.loader import BucketBatchSampler

FRAMES_A_SECOND = 100
BATCH_SECONDS = 600
NUM_BUCKETS = 8


def durations(count: int) -> np.ndarray:
    """Seconds of read speech: most near the longest, the rest evenly below."""
    rng = np.random.default_rng(0)
    near, below = rng.normal(14.3, 1.5, count * 72 // 100), rng.uniform(1.3, 13, count * 28 // 100)
    return np.concatenate([near, below]).clip(1.2, 17.5)


def main() -> None:
    """The best boundaries, then batches of fixed shapes."""
    frames = np.ceil(durations(40_000) * FRAMES_A_SECOND).astype(np.int64)
    limits = lw.BatchLimits(max_tokens=BATCH_SECONDS * FRAMES_A_SECOND, max_batch_size=128)
    hist = lw.LengthHistogram.from_lengths(frames)
    best = lw.optimize_boundaries(hist, limits, NUM_BUCKETS, pad_to_boundary=True)
    print(f"{NUM_BUCKETS} lengths: {1 - best.efficiency:.1%} padding, seconds", end=" ")
    print([round((edge - 1) / FRAMES_A_SECOND, 1) for edge in best.boundaries[1:]])

    config = lw.BatchingConfig(
        limits=limits,
        strategy="bucketed",
        boundaries=best.boundaries,
        batch_sizing="fixed",
        pad_to_boundary=True,
    )
    sampler = BucketBatchSampler(frames, config=config)
    shapes = {
        (len(batch), int(np.searchsorted(best.boundaries, frames[batch].max(), side="right")))
        for batch in sampler
    }
    print(f"{len(sampler)} batches of {len(shapes)} shapes, the last of a bucket included")
    assert len(shapes) <= 2 * NUM_BUCKETS


if __name__ == "__main__":
    main()
