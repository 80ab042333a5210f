"""Samplers of small data sets, and what they must yield, worked out batch by batch from plans."""

from contextlib import contextmanager

import numpy as np

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.loader.batch_sampler import BucketBatchSampler

EVERY_KIND = {
    "pooled": {},
    "windowed": {"strategy": "windowed", "window_size": 30},
    "windows in buckets": {"strategy": "windowed", "window_size": 30, "num_buckets": 2},
    "bucketed": {"num_buckets": 3},
    "sorted": {"strategy": "sorted"},
    "random": {"strategy": "random"},
    "fixed": {"num_buckets": 3, "batch_sizing": "fixed"},
    "fixed, lockstep": {
        "num_buckets": 3,
        "batch_sizing": "fixed",
        "balance": "bucket",
        "accumulation_steps": 2,
    },
    "drop_last": {"num_buckets": 3, "drop_last": True},
}
"""Options that go through every way of planning."""


def heavy_tail(count, seed=0, most=300):
    values = 10 * np.random.default_rng(seed).pareto(1.0, count) + 1
    return np.minimum(values, most).astype(np.int64)


def make(lengths, *, rank=0, num_replicas=1, plan_ahead=False, config=None, **options):
    """A sampler of one rank; by default small batches."""
    if config is None:
        options = {"max_tokens": 900, "max_batch_size": 16, **options}
    return BucketBatchSampler(
        lengths,
        config=config,
        rank=rank,
        num_replicas=num_replicas,
        plan_ahead=plan_ahead,
        num_threads=1,
        **options,
    )


def make_all(lengths, num_replicas, **options):
    """One sampler a rank."""
    return [
        make(lengths, rank=rank, num_replicas=num_replicas, **options)
        for rank in range(num_replicas)
    ]


def expected_batches(lengths, config, epoch, num_replicas):
    """What each rank must yield, by the plan's definition: batch ``s * num_replicas + rank``."""
    plan = build_plan(lengths, config, epoch=epoch, num_replicas=num_replicas)
    return [
        [plan.batch(step * num_replicas + rank).tolist() for step in range(plan.num_steps)]
        for rank in range(num_replicas)
    ]


def small_config(**options):
    limits = BatchLimits(max_tokens=900, max_batch_size=16)
    return BatchingConfig(limits=limits, **options)


def flat(batches):
    """All samples of a list of batches."""
    return [sample for batch in batches for sample in batch]


def take(iterator, count):
    return [next(iterator) for _ in range(count)]


@contextmanager
def counted(monkeypatch, owner, name):
    """Count the calls of a method, which still does its work; a list of their arguments."""
    calls, method = [], getattr(owner, name)

    def counting(*arguments, **options):
        calls.append(arguments)
        return method(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counting)
        yield calls
