"""How good the optimal boundaries are, simulated too, and how long finding them takes."""

from __future__ import annotations

from workloads import PUBLISHED, RUN_LIMITS, run_histogram, run_lengths, summary, times

import lengthwise as lw

COUNTS = (6, 16, 64)
EPOCHS = 3


def measure(quick):
    """Expected and simulated efficiency for each K; seconds for K = 6 and for the curve."""
    histogram, lengths = run_histogram(), run_lengths()
    rows = []
    for count in COUNTS:
        best = lw.optimize_boundaries(histogram, RUN_LIMITS, num_buckets=count)
        rows.append(_row(f"{count} best buckets", best, lengths))
    published = lw.evaluate_boundaries(histogram, RUN_LIMITS, PUBLISHED)
    rows.append(_row("published six", published, lengths))
    for row in rows:
        print(
            f"{row['name']:16} expected {row['expected_efficiency']:.5f} "
            f"simulated {row['simulated_efficiency']:.5f}"
        )
    six = summary(times(lambda: lw.optimize_boundaries(histogram, RUN_LIMITS, 6), 3))
    repeats = 1 if quick else 2
    curve = summary(times(lambda: lw.optimize_curve(histogram, RUN_LIMITS, 64), repeats))
    print(f"6 buckets: {six['median_seconds']:.2f} s; to 64: {curve['median_seconds']:.2f} s")
    return {"rows": rows, "six_buckets": six, "curve_to_64": curve}


def _row(name, bucketing, lengths):
    config = lw.BatchingConfig(limits=RUN_LIMITS, boundaries=bucketing.boundaries)
    planner = lw.Planner(lengths, config)
    stats = [planner.plan(epoch).stats for epoch in range(EPOCHS)]
    return {
        "name": name,
        "boundaries": list(bucketing.boundaries),
        "expected_efficiency": bucketing.efficiency,
        "simulated_efficiency": sum(s.efficiency for s in stats) / EPOCHS,
        "expected_batches": bucketing.num_batches,
        "simulated_batches": sum(s.num_batches for s in stats) / EPOCHS,
    }
