"""Some steps of a plan that is too large to lay out, measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.diversity import Diversity, measure_diversity, utilization
from lengthwise.core.fixed import FixedBatches

if TYPE_CHECKING:
    from lengthwise.core.plan import EpochPlan

MOST_BATCHES = 1 << 17
"""Batches that are laid out at most, but at least one optimiser step."""


@dataclass(frozen=True, slots=True)
class SampledPlan:
    """What is known of a plan from some of its optimiser steps, evenly spread over the epoch.

    Attributes:
        num_batches: batches that were measured.
        efficiency: their real / padded tokens.
        utilization: their real tokens / what so many batches may hold.
        diversity: of them; no pairs are followed to the next epoch.
    """

    num_batches: int
    efficiency: float
    utilization: float
    diversity: Diversity


def is_large(plan: EpochPlan) -> bool:
    """Whether a plan is computed when asked for, and has more batches than are laid out here."""
    return isinstance(plan.source, FixedBatches) and plan.num_batches > MOST_BATCHES


def sample_plan(plan: EpochPlan, most: int = MOST_BATCHES) -> SampledPlan:
    """Measure optimiser steps evenly spread over an epoch of fixed sizes.

    Args:
        plan: of fixed sizes.
        most: batches that are laid out at most, but at least one optimiser step.
    """
    source = plan.source
    assert isinstance(source, FixedBatches), "a plan that is stored can be measured as it is"
    accumulation = plan.config.accumulation_steps
    per_step = min(plan.num_replicas * accumulation, plan.num_batches)
    num_steps = plan.num_batches // per_step
    number = min(num_steps, max(1, most // per_step))
    steps = np.arange(number) * num_steps // number
    indices = (steps[:, None] * per_step + np.arange(per_step)).reshape(-1)
    batches = source.table(plan.num_threads, indices)
    own = source.prepared.lengths.take(batches.order)
    batches = replace(batches, order=np.arange(own.size, dtype=np.uint32))
    real = int(batches.tokens.sum())
    return SampledPlan(
        num_batches=len(batches),
        efficiency=real / int(batches.padded_tokens.sum()),
        utilization=utilization(batches, plan.config.limits.max_tokens),
        diversity=measure_diversity(
            batches, own, num_replicas=plan.num_replicas, accumulation_steps=accumulation
        ),
    )
