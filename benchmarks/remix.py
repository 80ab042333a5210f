"""How mixed a drafter's steps are, by the width of the pool that they draw from.

The target's batches are formed by length; behind it samples wait in a pool, from which optimiser
steps draw at random. On the run's distribution: what padding costs before the pool, how
representative a step is behind it, and what waits.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

import numpy as np
import pages
import torch
from workloads import PUBLISHED, RUN_LIMITS, run_lengths

import lengthwise as lw
from lengthwise.core.diversity import design_effect
from lengthwise.core.remix import remix
from lengthwise.dflash.batch import Sample, pack_rows, round_up, split_by_anchors
from lengthwise.dflash.training.sections import BatchingSection, StepSection

RESULT = Path(__file__).parent / "results" / "remix.json"
PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "dflash.md"
MAX_ANCHORS = 512
STEP_ANCHORS = 32_768
"""Of the steps in the first table: those of 64 long samples."""
POOLS = (2, 4, 8, 16, 24, 32)
STEPS = (8_192, 32_768, 131_072)
MIXED = (1, 2, 4, 8, 16, 32)
EPOCHS = 3
DEFAULT = 24
"""Batches of the default's pool."""
LAID_OUT = 50
"""Steps whose rows are laid out."""
TOKEN_BYTES = 5 * 4_096 * 2
"""Features of a token: five taps of Qwen3-8B in bfloat16."""


def measure(quick):
    """Both tables, as plain values; every figure is the mean of some epochs."""
    lengths = run_lengths(60_000 if quick else None)
    # Half of a sample is answer, and each of its tokens may begin a block.
    costs = np.minimum(lengths // 2, MAX_ANCHORS)
    cost_mean = float(costs.mean())
    batches = {mixed: by_length(lengths, mixed) for mixed in MIXED}
    first = batches[8][0]

    def row(pool_batches, mixed=8, step_anchors=STEP_ANCHORS):
        found = [
            remix(
                plan, lengths, costs,
                pool_tokens=pool_batches * RUN_LIMITS.max_tokens, step_cost=step_anchors,
                epoch=epoch,
            )
            for epoch, plan in enumerate(batches[mixed])
        ]  # fmt: skip
        effect = float(np.mean([design_effect(plan.steps, lengths, 1) for plan in found]))
        print(f"pool {pool_batches}, mixed {mixed}, {step_anchors:,} anchors a step: {effect:.3f}")
        return {
            "pool_batches": pool_batches,
            "mixed_batches": mixed,
            "step_anchors": step_anchors,
            "design_effect": effect,
            "num_steps": found[0].num_steps,
            "pool_bytes": pool_batches * BatchingSection().max_tokens * TOKEN_BYTES,
            "rows": fills(found[0], lengths) if pool_batches == DEFAULT else None,
        }

    return {
        "num_samples": int(lengths.size),
        "efficiency": float(first.tokens.sum() / first.padded_tokens.sum()),
        "random_efficiency": efficiency(lengths, strategy="random"),
        "samples_per_step": STEP_ANCHORS / cost_mean,
        "bucketed": bucketed(lengths, STEP_ANCHORS / cost_mean),
        "pools": [row(pool, step_anchors=step) for step in STEPS for pool in POOLS],
        "mixed": [row(pool, mixed) for pool in (8, 16, 24, 32) for mixed in MIXED],
    }


def fills(plan, lengths):
    """The share of real tokens in a drafter's packed rows: as it lays them out, and as drawn."""
    real, laid = 0, {"alike": 0, "drawn": 0}
    for step in range(min(LAID_OUT, plan.num_steps)):
        drawn = plan.step(step).tolist()
        real += int(lengths[drawn].sum())
        laid["drawn"] += row_tokens(drawn, lengths)
        laid["alike"] += row_tokens(sorted(drawn, key=lengths.__getitem__), lengths)
    return {name: real / tokens for name, tokens in laid.items()}


def row_tokens(samples, lengths):
    """Tokens of all rows of a step, with padding, samples taken in this order."""
    section, total = StepSection(), 0
    blanks = [blank(sample, int(lengths[sample])) for sample in samples]
    for part in split_by_anchors(blanks, section.max_anchors_per_batch, section.max_anchors):
        width = round_up(max(map(len, part)), section.shape_multiple)
        total += pack_rows(part, width, multiple_of=section.shape_multiple).input_ids.numel()
    return total


def blank(sample, length):
    """A sample without features, the latter half of it supervised."""
    return Sample(
        sample, torch.zeros(length, dtype=torch.int64),
        torch.arange(length) >= length - length // 2 - 1, torch.zeros(length, 0),
    )  # fmt: skip


def by_length(lengths, mixed):
    """The target's batches of some epochs, as `lengthwise dflash train` forms them."""
    config = lw.BatchingConfig(
        limits=RUN_LIMITS, strategy="windowed", window_size=8192,
        order="balanced", accumulation_steps=mixed, balance="none",
    )  # fmt: skip
    planner = lw.Planner(lengths, config)
    return [planner.plan(epoch).batches for epoch in range(EPOCHS)]


def efficiency(lengths, **choices):
    """Real over padded tokens of one epoch."""
    stats = lw.build_plan(lengths, lw.BatchingConfig(limits=RUN_LIMITS, **choices)).stats
    return stats.efficiency


def bucketed(lengths, samples_per_step):
    """The original run's batches, shuffled: steps of about as many samples, no pool."""
    config = lw.BatchingConfig(
        limits=RUN_LIMITS, strategy="bucketed", boundaries=PUBLISHED, order="shuffled"
    )
    batches = lw.build_plan(lengths, config).batches
    group = max(1, round(samples_per_step / (lengths.size / len(batches))))
    return {
        "efficiency": float(batches.tokens.sum() / batches.padded_tokens.sum()),
        "batches_per_step": group,
        "design_effect": design_effect(batches, lengths, group),
    }


def parts(found):
    """The generated parts of the page, by their marks."""
    table = {
        (row["step_anchors"], row["pool_batches"]): row["design_effect"] for row in found["pools"]
    }
    sizes = {row["pool_batches"]: row["pool_bytes"] / 2**30 for row in found["pools"]}
    rows = [
        (
            f"pool of {pool} batches" + (" (default)" if pool == DEFAULT else ""),
            *(f"{table[step, pool]:.2f}" for step in STEPS),
            f"{sizes[pool]:,.1f}",
        )
        for pool in POOLS
    ]
    columns = (
        "samples of a step come from",
        *(f"{step:,} anchors a step" for step in STEPS),
        "GiB for Qwen3-8B",
    )
    old = found["bucketed"]
    mixed = {
        (row["pool_batches"], row["mixed_batches"]): row["design_effect"] for row in found["mixed"]
    }
    pools = sorted({pool for pool, _ in mixed})
    text = (
        f"Windows of 8192 give the target's batches an efficiency of "
        f"{100 * found['efficiency']:.1f} %, random batches "
        f"{100 * found['random_efficiency']:.1f} %, the original run's six buckets "
        f"{100 * old['efficiency']:.1f} %. Steps made of the latter, shuffled, "
        f"{old['batches_per_step']} batches each, have a design effect of "
        f"{old['design_effect']:.0f}. Behind a pool:"
    )
    filled = {row["step_anchors"]: row["rows"] for row in found["pools"] if row["rows"]}
    shares = " and ".join(
        f"{100 * filled[step]['alike']:.0f} % in steps of {step:,} anchors" for step in STEPS[:2]
    )
    after = (
        f"The last column is for five taps in bfloat16 and batches of 16,384 tokens, the default. "
        f"A step's samples are laid into rows with those of like length, which changes nothing but "
        f"padding: of the rows' tokens {shares} are real; in the order drawn "
        f"{100 * filled[STEPS[0]]['drawn']:.0f} % would be."
    )
    table_text = pages.table(columns, rows)
    return {
        "remix": "\n\n".join(("\n".join(wrap(text, 100)), table_text, "\n".join(wrap(after, 100)))),
        "mixed": pages.table(
            ("`mixed_batches`", *(f"pool of {pool}" for pool in pools)),
            [(m, *(f"{mixed[pool, m]:.2f}" for pool in pools)) for m in MIXED],
        ),
    }


def fill_page(found):
    """Put each part between its marks."""
    pages.fill(PAGE, parts(found))


if __name__ == "__main__":
    fill_page(pages.result(RESULT))
