"""One strategy, planned for two epochs and measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.core.diversity import measure_diversity
from lengthwise.core.planner import Planner

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    """What one strategy costs and gives; measured on its plans of epochs 0 and 1.

    Attributes:
        strategy: the strategy's name, or ``"packed"`` for the bound of packing without padding.
        label: the same in words, with its parameter.
        efficiency: real / padded tokens.
        utilization: real tokens / (num_batches * max_tokens).
        num_batches: batches an epoch, over all replicas.
        num_samples: samples planned.
        padded_tokens: tokens computed, padding included.
        repeat_rate: share of pairs that share a batch in epoch 0 and again in epoch 1.
        order_correlation: lag-1 correlation of the batches' mean lengths.
        length_spread: deviation of length inside a batch / the data set's.
        design_effect: of length, for an optimiser step.
        tokens_per_step_cv: variation of real tokens per optimiser step.
        samples_per_step_cv: variation of samples per optimiser step.
        num_shapes: distinct (samples, padded length).
        replica_balance: mean / maximum padded tokens of the replicas, averaged over steps.
        planning_seconds: planning one epoch, after set-up.
        recommended: whether this is the one to use.
    """

    strategy: str
    label: str
    efficiency: float
    utilization: float
    num_batches: int
    num_samples: int
    padded_tokens: int
    repeat_rate: float | None = None
    order_correlation: float | None = None
    length_spread: float | None = None
    design_effect: float | None = None
    tokens_per_step_cv: float | None = None
    samples_per_step_cv: float | None = None
    num_shapes: int | None = None
    replica_balance: float | None = None
    planning_seconds: float | None = None
    recommended: bool = False

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def measure_strategy(
    lengths: npt.ArrayLike, config: BatchingConfig, label: str, num_replicas: int
) -> StrategyResult:
    """Plan epochs 0 and 1 and measure the first against the second."""
    planner = Planner(lengths, config, num_replicas=num_replicas)
    plan = planner.plan(0)
    started = time.perf_counter()
    following = planner.plan(1)
    seconds = time.perf_counter() - started
    stats = plan.stats
    diversity = measure_diversity(
        plan.batches,
        planner.lengths,
        next_batches=following.batches,
        num_replicas=num_replicas,
        accumulation_steps=config.accumulation_steps,
    )
    return StrategyResult(
        strategy=planner.config.strategy,
        label=label,
        efficiency=stats.efficiency,
        utilization=stats.utilization,
        num_batches=stats.num_batches,
        num_samples=stats.num_samples,
        padded_tokens=stats.padded_tokens,
        repeat_rate=diversity.partner_repeat_rate,
        order_correlation=diversity.order_correlation,
        length_spread=diversity.length_spread,
        design_effect=diversity.design_effect,
        tokens_per_step_cv=diversity.step_tokens_cv,
        samples_per_step_cv=diversity.step_samples_cv,
        num_shapes=diversity.num_shapes,
        replica_balance=diversity.replica_balance,
        planning_seconds=seconds,
    )
