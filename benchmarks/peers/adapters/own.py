"""lengthwise itself, through the sampler that users have."""

from __future__ import annotations

from lengthwise.loader import BucketBatchSampler
from peers.case import STEP, About

PLANS = {
    "pooled": "all defaults",
    "six": "the published six buckets, where the data has some, else the six best",
    "windowed": 'strategy="windowed", window_size=1024',
    "fixed": 'the same six buckets, batch_sizing="fixed"',
}


def about(plan):
    """What it promises."""
    return About(
        package="lengthwise",
        settings=f"{PLANS[plan]}; accumulation_steps so that a step has {STEP} batches; "
        "plan_ahead=False, so that no time is hidden in a thread",
        source="docs/guides/sampler.md",
        resume="state",
    )


def prepare(lengths):
    """An array of lengths is its own form."""
    return lengths


def make(lengths, case, replica, plan):
    """One replica's sampler."""
    fields = {"windowed": {"strategy": "windowed"}, "pooled": {}}.get(plan)
    if fields is None:
        fields = {"boundaries": case.boundaries} if case.boundaries else {"num_buckets": 6}
    if plan == "fixed":
        fields["batch_sizing"] = "fixed"
    return BucketBatchSampler(
        lengths,
        max_tokens=case.max_tokens,
        max_batch_size=case.max_batch_size,
        seed=case.seed,
        rank=replica.rank,
        num_replicas=replica.num_replicas,
        accumulation_steps=replica.accumulation,
        plan_ahead=False,
        **fields,
    )
