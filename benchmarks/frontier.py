"""The run's story: every strategy and the frontier on the run's distribution."""

from __future__ import annotations

from workloads import HAND_PICKED, PUBLISHED, RUN_LIMITS, run_lengths

import lengthwise as lw

LABELS = {
    "sorted": "sorted, frozen",
    "random": "random",
    "given": "published six buckets",
    "bucketed": "six best buckets",
    "windowed": "windows of 1024",
    "windowed_in_buckets": "windows of 256 in six best buckets",
    "pooled": "**pool (default)**",
    "packed": "no padding at all (bound)",
}


def measure(quick):
    """The comparison with 8 batches a step, as plain values."""
    lengths = run_lengths()
    comparison = lw.compare_strategies(
        lengths, RUN_LIMITS, boundaries=PUBLISHED, num_replicas=8, frontier=not quick
    )
    found = comparison.to_dict()
    found.pop("histogram")
    hand = lw.evaluate_boundaries(comparison.histogram, RUN_LIMITS, HAND_PICKED)
    found["hand_picked_efficiency"] = hand.efficiency
    print(comparison.reason)
    return found


def table(found):
    """The README's table, from a result."""
    lines = [
        "| plan | efficiency | batches | repeat rate | design effect, 8 batches | planned in |",
        "|---|---|---|---|---|---|",
    ]
    for name, label in LABELS.items():
        row = found["strategies"][name]
        if row["repeat_rate"] is None:
            lines.append(f"| {label} | 1.0000 | {row['num_batches']:,} | | | |")
            continue
        lines.append(
            f"| {label} | {row['efficiency']:.4f} | {row['num_batches']:,} | "
            f"{row['repeat_rate']:.6f} | {row['design_effect']:.3f} | "
            f"{row['planning_seconds'] * 1000:.0f} ms |"
        )
    return "\n".join(lines)
