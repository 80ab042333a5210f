"""How diverse each strategy is on the DFlash run's distribution; the tables of the docs.

python benchmarks/diversity_table.py

Prints three tables in Markdown. Sample numbers are shuffled first, so that no strategy profits from
a sorted file. Efficiency and repeat rate are of the plan; design effects of length are of optimiser
steps of 1 to 32 batches on one replica.
"""

from __future__ import annotations

import platform
import time
from pathlib import Path

import numba
import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.config import BatchingConfig
from lengthwise.core.diversity import design_effect, measure_diversity, replica_balance
from lengthwise.core.limits import BatchLimits
from lengthwise.core.order import OrderRule, arrange
from lengthwise.core.planner import Planner

HISTOGRAM = Path(__file__).parents[1] / "data" / "dflash_run_histogram.csv"
LIMITS = BatchLimits(max_tokens=49_152, max_batch_size=64)
PUBLISHED = (0, 770, 1216, 1728, 2432, 3296, 8192)
PLANS = {
    "random": {"strategy": "random"},
    "sorted, frozen": {"strategy": "sorted"},
    "published six": {"strategy": "bucketed", "boundaries": PUBLISHED},
    "window 1024": {"strategy": "windowed", "window_size": 1024},
    "pooled (default)": {"strategy": "pooled"},
}
ORDERS = ("shuffled", "stratified", "balanced")
GROUPS = (1, 2, 4, 8, 32)
ATTENTION_TOKENS = 8192
"""Padded length at which attention is taken to cost as much as all the rest of a model."""


def run_lengths():
    rows = np.loadtxt(HISTOGRAM, delimiter=",", skiprows=1, dtype=np.int64)
    return np.random.default_rng(0).permutation(np.repeat(rows[:, 0], rows[:, 1]))


def plans_of(lengths, epochs=2, **choices):
    planner = Planner(lengths, BatchingConfig(limits=LIMITS, order="shuffled", **choices))
    return [planner.plan(epoch).batches for epoch in range(epochs)]


def group_by_length(lengths, batch_size, rng):
    """The common recipe: batches of one size from sorted megabatches of 50, in sorted order."""
    order = rng.permutation(lengths.size).astype(np.uint32)
    for start in range(0, order.size, 50 * batch_size):
        part = order[start : start + 50 * batch_size]
        order[start : start + 50 * batch_size] = part[np.argsort(-lengths[part], kind="stable")]
    starts = np.arange(0, order.size, batch_size)
    sizes = np.diff(starts, append=order.size)
    padded = np.maximum.reduceat(lengths[order], starts)
    return Batches(order, starts, sizes, padded, np.add.reduceat(lengths[order], starts))


def short(effect):
    if effect < 1e-4:
        return "< 0.0001"
    return f"{effect:.0f}" if effect >= 10 else f"{effect:.2g}"


def in_order(batches, rule, costs=None, key=1):
    costs = batches.padded_tokens if costs is None else costs
    return arrange(batches.tokens, batches.sizes, costs, None, rule=rule, key=key)


def effects(batches, lengths, order):
    found = []
    for size in GROUPS:
        rule = OrderRule(order, "none", 1, size)
        found.append(design_effect(batches.select(in_order(batches, rule)), lengths, size))
    return found


def row(name, order, batches, following, lengths, found):
    numbers = measure_diversity(batches, lengths, next_batches=following, accumulation_steps=8)
    efficiency = batches.tokens.sum() / batches.padded_tokens.sum()
    cells = [
        name,
        order,
        f"{efficiency:.4f}",
        f"{numbers.partner_repeat_rate:.6f}",
        f"{numbers.length_spread:.3f}",
        f"{numbers.order_correlation:+.3f}",
        f"{numbers.step_tokens_cv:.3f}",
        f"{numbers.step_samples_cv:.3f}",
        *(short(value) for value in found),
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def table_of_orders(lengths):
    print(
        "| plan | order | efficiency | repeat rate | spread | order correlation "
        "| tokens cv, G = 8 | samples cv, G = 8 | "
        + " | ".join(f"G = {size}" for size in GROUPS)
        + " |"
    )
    print("|---" * (8 + len(GROUPS)) + "|")
    for name, choices in PLANS.items():
        batches, following = plans_of(lengths, **choices)
        for order in ORDERS:
            placed = batches.select(in_order(batches, OrderRule(order, "none", 1, 8)))
            found = effects(batches, lengths, order)
            row(name, order, placed, following, lengths, found)
    for size in (11, 23):
        batches, following = (
            group_by_length(lengths, size, np.random.default_rng(seed)) for seed in (1, 2)
        )
        found = [design_effect(batches, lengths, group) for group in GROUPS]
        name = f"group by length, batches of {size}"
        row(name, "as it comes", batches, following, lengths, found)


def table_of_balance(lengths):
    print(
        "| replicas | accumulation | balance | design effect | balance, tokens | with attention |"
    )
    print("|---" * 6 + "|")
    (batches,) = plans_of(lengths, epochs=1, **PLANS["pooled (default)"])
    batches = batches.select(np.arange(len(batches) // 8 * 8))
    costs = batches.padded_tokens * (1 + batches.padded / ATTENTION_TOKENS)
    for num_replicas, accumulation in ((8, 1), (8, 4), (8, 8), (2, 16)):
        for balance in ("none", "cost"):
            rule = OrderRule("balanced", balance, num_replicas, accumulation)
            places = in_order(batches, rule, costs)
            effect = design_effect(batches.select(places), lengths, rule.batches_per_step)
            plain = replica_balance(batches.padded_tokens[places], num_replicas)
            full = replica_balance(costs[places], num_replicas)
            print(
                f"| {num_replicas} | {accumulation} | {balance} | {short(effect)} "
                f"| {plain:.3f} | {full:.3f} |"
            )


def table_of_quantities(lengths):
    quantities = {
        "length": lengths,
        "length squared": lengths.astype(np.float64) ** 2,
        "logarithm of length": np.log(lengths),
        "longer than 4,096": lengths > 4096,
        "shorter than 512": lengths < 512,
        "unrelated to length": np.random.default_rng(1).normal(size=lengths.size),
    }
    print("| quantity | " + " | ".join(ORDERS) + " |")
    print("|---" * (1 + len(ORDERS)) + "|")
    (batches,) = plans_of(lengths, epochs=1, **PLANS["pooled (default)"])
    for name, values in quantities.items():
        found = []
        for order in ORDERS:
            placed = batches.select(in_order(batches, OrderRule(order, "none", 1, 8)))
            found.append(short(design_effect(placed, values, 8)))
        print(f"| {name} | " + " | ".join(found) + " |")


def time_of_balancing(lengths):
    (batches,) = plans_of(lengths, epochs=1, **PLANS["window 1024"])
    rule = OrderRule("balanced", "none", 1, 8)
    times = []
    for key in range(6):
        started = time.perf_counter()
        in_order(batches, rule, key=key)
        times.append(time.perf_counter() - started)
    print(
        f"Balancing {len(batches):,} batches, 8 a step: {1000 * min(times):.1f} ms "
        f"(first call in the process {1000 * times[0]:.0f} ms)"
    )


def main():
    lengths = run_lengths()
    print(
        f"{lengths.size:,} samples, {LIMITS.max_tokens:,} tokens, {LIMITS.max_batch_size} samples; "
        f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"numba {numba.__version__}\n"
    )
    time_of_balancing(lengths)
    print()
    table_of_orders(lengths)
    print()
    table_of_quantities(lengths)
    print()
    table_of_balance(lengths)


if __name__ == "__main__":
    main()
