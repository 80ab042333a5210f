"""Balancing the order of an epoch's batches: seconds, and the design effect it reaches."""

from __future__ import annotations

from workloads import RUN_LIMITS, run_lengths, summary, times

import lengthwise as lw
from lengthwise.core.order import OrderRule, arrange


def measure(quick):
    """Eight batches a step, on the default plan's batches of the run's distribution."""
    lengths = run_lengths()
    planner = lw.Planner(lengths, lw.BatchingConfig(limits=RUN_LIMITS), num_replicas=8)
    batches = planner.plan(0).batches
    rule = OrderRule("balanced", "none", 8, 1)

    def balance():
        return arrange(batches.tokens, batches.sizes, batches.padded_tokens, None, rule=rule, key=1)

    seconds = summary(times(balance, 3 if quick else 10))
    diversity = lw.measure_diversity(batches, lengths, num_replicas=8)
    print(
        f"{len(batches):,} batches balanced in {seconds['median_seconds'] * 1000:.1f} ms, "
        f"design effect of length {diversity.design_effect:.4f}"
    )
    return {
        "num_batches": len(batches),
        "design_effect": diversity.design_effect,
        **seconds,
    }
