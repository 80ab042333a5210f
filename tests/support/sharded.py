"""Data in shards, and configs that plan a few of them at a time."""

import numpy as np

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits

LIMITS = BatchLimits(2000, 32)
KINDS = {
    "pooled": {},
    "windowed": {"strategy": "windowed", "window_size": 50},
    "bucketed": {"boundaries": (0, 20, 60, 301)},
    "fixed": {"boundaries": (0, 20, 60, 301), "batch_sizing": "fixed"},
    "fixed, lockstep": {"boundaries": (0, 20, 60, 301), "batch_sizing": "fixed", "balance": "cost"},
    "fixed, shuffled": {"strategy": "random", "batch_sizing": "fixed", "order": "shuffled"},
}


def config_of(kind, **options):
    return BatchingConfig(limits=LIMITS, **{**KINDS[kind], "shards_per_group": 3, **options})


def by_source(num_shards=24, each=400):
    """The bad case: every shard has lengths of its own, as where shards are sorted by source."""
    rng = np.random.default_rng(5)
    tops = np.linspace(12, 300, num_shards).astype(int)
    return [rng.integers(max(1, top // 3), top + 1, each) for top in tops]
