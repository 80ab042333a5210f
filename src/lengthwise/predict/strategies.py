"""Every batching strategy's predicted time on one data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.compare.strategies import plannable, strategy_configs
from lengthwise.core.boundaries import optimize_boundaries
from lengthwise.core.histogram import check_lengths
from lengthwise.core.planner import Planner
from lengthwise.errors import PlanError
from lengthwise.predict.expected import predict_expected
from lengthwise.predict.plan import DEFAULT_TIMING, predict_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig, Oversize
    from lengthwise.core.cost import CostModel
    from lengthwise.core.limits import BatchLimits
    from lengthwise.predict.prediction import Prediction
    from lengthwise.predict.pricing import Fit, Timing

SHOWN = ("sorted", "random", "bucketed", "windowed", "pooled", "given")
"""Strategies that are predicted, of those that are compared."""


@dataclass(frozen=True, slots=True)
class StrategyPrediction:
    """One strategy's epoch.

    Attributes:
        label: the strategy in words, with its parameter.
        config: its config, with the boundaries found.
        prediction: what an epoch takes.
    """

    label: str
    config: BatchingConfig
    prediction: Prediction

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the label, the config, and the prediction's own keys."""
        return {
            "label": self.label,
            "config": self.config.to_dict(),
            **self.prediction.to_dict(),
        }


def usual_strategies(
    lengths: npt.ArrayLike,
    limits: BatchLimits,
    num_buckets: int = 6,
    *,
    boundaries: Sequence[int] | None = None,
    accumulation_steps: int = 1,
    seed: int = 0,
    oversize: Oversize = "error",
) -> dict[str, tuple[str, BatchingConfig]]:
    """Name -> (words, config) of what ``lengthwise compare`` compares: sorted to pooled.

    Args:
        lengths: tokens of each sample, shape (N,).
        limits: what a batch may hold.
        num_buckets: buckets of ``"bucketed"``: those of least padding.
        boundaries: boundaries of your own, to stand beside the others as ``"given"``.
        accumulation_steps: batches that an optimiser step takes on each replica.
        seed: of all plans.
        oversize: what happens to samples that fit no batch.

    Raises:
        OversizeError, PlanError, ConfigError: see :class:`~lengthwise.core.planner.Planner`.
    """
    values = check_lengths(lengths)
    if values.size == 0:
        raise PlanError("there are no samples to predict an epoch of: lengths is empty")
    shared = {"accumulation_steps": accumulation_steps, "seed": seed, "oversize": oversize}
    hist, _ = plannable(values, limits, oversize)
    best = optimize_boundaries(hist, limits, num_buckets=num_buckets)
    found = strategy_configs(limits, best, boundaries, shared, int(values.size))
    return {name: found[name] for name in SHOWN if name in found}


def predict_strategies(
    lengths: npt.ArrayLike,
    strategies: Mapping[str, tuple[str, BatchingConfig]],
    cost: Fit | CostModel,
    *,
    num_replicas: int = 1,
    timing: Timing = DEFAULT_TIMING,
    in_expectation: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, StrategyPrediction]:
    """What the first epoch takes under each of several configs.

    Args:
        lengths: tokens of each sample, shape (N,).
        strategies: name -> (words, config), as :func:`usual_strategies` gives them.
        cost: a fit from ``lengthwise.calibrate``, or a cost model that returns seconds.
        num_replicas: replicas that run one batch each in every step.
        timing: how replicas meet, and how wide intervals are to be.
        in_expectation: predict bucketed and random batches, whose expectation is known exactly,
            by it; for lengths that come from a histogram.
        progress: called as ``progress(done, total, what)``.

    Raises:
        OversizeError, PlanError, ConfigError: see :class:`~lengthwise.core.planner.Planner`.
    """
    values = check_lengths(lengths)
    found: dict[str, StrategyPrediction] = {}
    for name, (label, wanted) in strategies.items():
        if progress is not None:
            progress(len(found), len(strategies), "strategies")
        if in_expectation and _has_expectation(wanted):
            config = wanted
            prediction = predict_expected(
                plannable(values, wanted.limits, wanted.oversize)[0],
                wanted.limits,
                wanted.boundaries,
                cost,
                num_replicas=num_replicas,
                pad_to_boundary=wanted.pad_to_boundary,
                timing=timing,
            )
        else:
            planner = Planner(values, wanted, num_replicas=num_replicas)
            config = planner.config
            prediction = predict_plan(planner.plan(0), values, cost, timing)
        found[name] = StrategyPrediction(label, config, prediction)
    return found


def _has_expectation(config: BatchingConfig) -> bool:
    """Whether the exact expectation is of such epochs."""
    return (
        config.strategy in ("bucketed", "random")
        and config.batch_sizing == "greedy"
        and config.num_buckets is None
        and config.num_batches is None
        and config.oversize != "single"
        and not config.drop_last
    )
