"""A few plans whose every batch is written down as a hash, by version of the planning rules.

To record a new version: raise ``PLAN_VERSION``, then ``PYTHONPATH=tests python -m
support.golden_plans``. A version that is recorded already is never overwritten.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from lengthwise.core.config import BatchingConfig
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from support.twins_random import mix

FILE = Path(__file__).parents[1] / "golden" / "plans.json"
LIMITS = BatchLimits(max_tokens=4096, max_batch_size=16)
PADDED = BatchLimits(4096, 32, pad_to_multiple_of=8, batch_size_multiple_of=4)
EDGES = (0, 100, 300, 1000, 4097)
PLANS = {
    "pooled": (BatchingConfig(limits=LIMITS), 3),
    "pooled, truncated, lockstep": (
        BatchingConfig(limits=PADDED, accumulation_steps=8, oversize="truncate", seed=-1),
        2,
    ),
    "windowed": (BatchingConfig(limits=LIMITS, strategy="windowed", window_size=64, seed=7), 4),
    "windowed in buckets": (
        BatchingConfig(
            limits=LIMITS, strategy="windowed", boundaries=EDGES, balance="bucket", drop_last=True
        ),
        4,
    ),
    "bucketed": (BatchingConfig(limits=LIMITS, boundaries=EDGES, order="stratified"), 5),
    "bucketed, optimised": (BatchingConfig(limits=LIMITS, num_buckets=5, order="shuffled"), 1),
    "bucketed, padded to boundary": (
        BatchingConfig(limits=PADDED, boundaries=EDGES, pad_to_boundary=True, seed=2**64 - 1),
        8,
    ),
    "fixed": (BatchingConfig(limits=LIMITS, boundaries=EDGES, batch_sizing="fixed"), 3),
    "fixed, random": (
        BatchingConfig(limits=PADDED, strategy="random", batch_sizing="fixed", drop_last=True),
        3,
    ),
    "pooled, by shards": (BatchingConfig(limits=LIMITS, shards_per_group=3), 3),
    "fixed, by shards": (
        BatchingConfig(limits=LIMITS, boundaries=EDGES, batch_sizing="fixed", shards_per_group=3),
        3,
    ),
    "sorted": (BatchingConfig(limits=LIMITS, strategy="sorted", balance="cost"), 2),
    "random": (BatchingConfig(limits=LIMITS, strategy="random"), 2),
}

NUM_SHARDS = 10
"""Of equal size, for the plans that look at shards."""

LARGE = BatchLimits(max_tokens=65_536, max_batch_size=512)
LARGE_PLANS = {
    "pooled, in streams": (BatchingConfig(limits=LARGE), 3),
    "windowed, shuffled in blocks": (BatchingConfig(limits=LARGE, strategy="windowed"), 2),
}


def lengths():
    """Three thousand lengths from 1 to 4,096, most of them short; from no generator."""
    return [1 + 4095 * (mix(42, i) % 1000) ** 3 // 999**3 for i in range(3000)]


def many_lengths():
    """So many that samples are shuffled in blocks and dealt in streams: 1 to 900, well mixed."""
    return 1 + np.arange(300_000) * 2_654_435_761 % 2**32 % 900


def digest(plan):
    """A hash of every index of every batch, their order, and the totals."""
    stats = {name: value for name, value in plan.stats.to_dict().items() if type(value) is int}
    state = hashlib.sha256(json.dumps(stats, sort_keys=True).encode())
    for batch in plan:
        state.update(np.array([batch.size, *batch], "<i8").tobytes())
    return state.hexdigest()[:32]


def digests():
    """Fingerprint, and hashes of the plans of epochs 0 and 5, by name."""
    result = {}
    for values, plans in ((lengths(), PLANS), (many_lengths(), LARGE_PLANS)):
        for name, (config, num_replicas) in plans.items():
            shards = [len(values) // NUM_SHARDS] * NUM_SHARDS
            planner = Planner(values, config, num_replicas=num_replicas, shard_sizes=shards)
            result[name] = [planner.fingerprint, *(digest(planner.plan(epoch)) for epoch in (0, 5))]
    return result


def recorded():
    """What was written down, by version."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def record():
    """Write down this version's plans; refuse to change history."""
    known = recorded()
    if str(PLAN_VERSION) in known:
        raise SystemExit(f"version {PLAN_VERSION} is recorded; raise PLAN_VERSION first")
    FILE.write_text(json.dumps({**known, str(PLAN_VERSION): digests()}, indent=1) + "\n")


if __name__ == "__main__":
    record()
