"""Plans of the cases that the property tests draw."""

import numpy as np

from lengthwise.core.planner import build_plan
from lengthwise.errors import PlanError


def plan_of(case, **options):
    return build_plan(
        case.lengths, case.config, epoch=case.epoch, num_replicas=case.num_replicas, **options
    )


def plan_or_none(case):
    """The plan; None where there is none, which then must be impossible indeed."""
    try:
        return plan_of(case)
    except PlanError:
        assert is_impossible(case)
        return None


def is_impossible(case):
    """Whether no number that the replicas divide lies between the fewest batches and the most.

    Batches can be split down to single samples but never merged; ``drop_last`` drops them instead,
    and ``num_batches`` leaves one number only.
    """
    free = case if case.config.num_batches is None else case.changed(num_batches=None)
    try:
        alone = build_plan(free.lengths, free.config, epoch=case.epoch)
    except PlanError:
        return case.config.drop_last  # fixed sizing, and not one full batch
    fewest, samples, replicas = alone.num_batches, alone.stats.num_samples, case.num_replicas
    if case.config.num_batches is not None:
        return not fewest <= -(-case.config.num_batches // replicas) * replicas <= samples
    if case.config.drop_last:
        return fewest < replicas
    return samples // replicas * replicas < fewest


def value_of(plan):
    """All that a plan says, as plain data."""
    return (
        plan.fingerprint,
        plan.num_replicas,
        plan.stats,
        [batch.tolist() for batch in plan],
        plan.batches.padded.tolist(),
        plan.batches.tokens.tolist(),
    )


def heavy_tail(count, seed=0, most=1000):
    values = 10 * np.random.default_rng(seed).pareto(1.0, count) + 1
    return np.minimum(values, most).astype(np.int64)
