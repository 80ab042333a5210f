"""Strategies of batching through the pipeline: throughput beside sorted, and how mixed steps are.

The target costs what its padded tokens cost, as devices do; the drafter half of that a real token,
so that the target holds the pipeline up, as it did in the run this project began with. Lengths are
that run's. The same with small real models on functions of the standard library.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pipeline_models import functions_config, write_functions
from pipeline_stages import Stages, stage_config, write_run_folder
from pipeline_timing import timed_run
from training_data import LONGEST
from workloads import PUBLISHED, RUN_LIMITS, run_lengths

import lengthwise as lw
from lengthwise.core.cost import StepTime
from lengthwise.core.diversity import design_effect
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import load_data

TARGET, DRAFTER = StepTime(seconds_per_token=3e-6), StepTime(seconds_per_token=1.5e-6)
STEP_ANCHORS = 32_768
"""Of 64 long samples, as in the original run."""
EPOCHS = 8
"""Whose plans a design effect is the mean of; one of them is run."""
ARMS = {
    "sorted": {"strategy": "sorted"},
    "random": {"strategy": "random"},
    "six published buckets": {"strategy": "bucketed", "boundaries": PUBLISHED},
    "recommended": {},
}
WINDOW = 8_192
"""Samples of a window of the recommended strategy: two of them are run."""
SCALED = tuple(edge * (LONGEST + 1) // PUBLISHED[-1] for edge in PUBLISHED)
"""The published boundaries over lengths that end at 768."""


def measure(place, quick):
    """Both tables: a row a strategy, one after the other in one call."""
    count = 1_000 if quick else 2 * WINDOW
    return {
        "num_lengths": count,
        "strategies": imitated(place / "strategies", count, quick),
        "real_strategies": real(place / "functions", quick),
    }


def imitated(folder, count, quick):
    """Imitated devices on so many of the run's lengths."""
    write_run_folder(folder, run_lengths(count))
    step = {"anchors_per_step": 4_096 if quick else STEP_ANCHORS}
    limits = {"max_tokens": RUN_LIMITS.max_tokens, "max_batch_size": RUN_LIMITS.max_batch_size}

    def config_of(arm):
        return stage_config(folder, folder / "out", batching={**limits, **arm}, step=step)

    return compared(config_of, ARMS, Stages(TARGET, DRAFTER))


def real(folder, quick):
    """Small models on functions of the standard library."""
    write_functions(folder, 100 if quick else 600)

    def config_of(arm):
        return functions_config(folder, folder / "out", **arm)

    arms = {**ARMS, "six published buckets": {"strategy": "bucketed", "boundaries": SCALED}}
    return compared(config_of, arms, Stages())


def compared(config_of, arms, stages):
    """Each strategy's figures, and its throughput beside that of sorted."""
    rows = {name: figures(name, config_of(arm), stages) for name, arm in arms.items()}
    for row in rows.values():
        row["ratio_to_sorted"] = row["tokens_per_second"] / rows["sorted"]["tokens_per_second"]
    return rows


def figures(name, config, stages):
    """One strategy: tokens a second while the target works, and what steps are like."""
    plan = TrainingPlan(load_data(config), config)
    effects = [effects_of(plan, config, number) for number in range(EPOCHS)]
    pooled, whole = np.mean(effects, axis=0).tolist()
    timing = timed_run(config, stages)
    rate = timing.real_tokens / timing.target.span_seconds
    print(f"{name}: {rate:,.0f} tokens a second, design effect {pooled:.2f} ({whole:.2f})")
    return {
        "tokens_per_second": rate,
        "whole_tokens_per_second": timing.real_tokens / timing.whole_seconds,
        "efficiency": timing.real_tokens / timing.padded_tokens,
        "share": timing.share,
        "design_effect": pooled,
        "design_effect_without_pool": whole,
    }


def effects_of(plan, config, number):
    """Design effects of length of an epoch's steps: out of the pool; of whole batches, shuffled."""
    mix, lengths = plan.epoch(number).mix, plan.data.lengths
    shuffled = replace(config.batching_config(), order="shuffled", seed=number)
    batches = lw.build_plan(lengths, shuffled).batches
    together = max(1, round(len(batches) / mix.num_steps))
    return design_effect(mix.steps, lengths, 1), design_effect(batches, lengths, together)
