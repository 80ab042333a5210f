"""Length-aware batching for variable-length training.

Reads only the lengths, finds the best bucket boundaries, and plans every epoch. Names are
imported when first used, so that importing the package loads neither torch, pyarrow nor numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lengthwise._version import __version__

if TYPE_CHECKING:
    from lengthwise.cluster.scan import scan_on_ray, write_shards
    from lengthwise.compare.strategies import Comparison, compare_strategies
    from lengthwise.core.boundaries import evaluate_boundaries, optimize_boundaries
    from lengthwise.core.bucketing import Bucketing
    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.cost import PaddedTokens, Steps, StepTime, TableTime
    from lengthwise.core.curve import optimize_curve
    from lengthwise.core.diversity import Diversity, measure_diversity
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits
    from lengthwise.core.plan import EpochPlan
    from lengthwise.core.planner import Planner, build_plan
    from lengthwise.core.stats import PlanStats
    from lengthwise.files.config_file import read_config, write_config
    from lengthwise.files.plan_file import read_plan, write_plan
    from lengthwise.lengths.api import read_lengths, scan_lengths
    from lengthwise.lengths.histogram_file import load_histogram, save_histogram
    from lengthwise.lengths.shards import LengthShards, open_shards

_HOME = {
    "BatchLimits": "core.limits",
    "BatchingConfig": "core.config",
    "Bucketing": "core.bucketing",
    "Comparison": "compare.strategies",
    "Diversity": "core.diversity",
    "EpochPlan": "core.plan",
    "LengthHistogram": "core.histogram",
    "PaddedTokens": "core.cost",
    "PlanStats": "core.stats",
    "LengthShards": "lengths.shards",
    "Planner": "core.planner",
    "StepTime": "core.cost",
    "Steps": "core.cost",
    "TableTime": "core.cost",
    "build_plan": "core.planner",
    "compare_strategies": "compare.strategies",
    "evaluate_boundaries": "core.boundaries",
    "load_histogram": "lengths.histogram_file",
    "measure_diversity": "core.diversity",
    "open_shards": "lengths.shards",
    "optimize_boundaries": "core.boundaries",
    "optimize_curve": "core.curve",
    "read_config": "files.config_file",
    "read_lengths": "lengths.api",
    "read_plan": "files.plan_file",
    "save_histogram": "lengths.histogram_file",
    "scan_lengths": "lengths.api",
    "scan_on_ray": "cluster.scan",
    "write_config": "files.config_file",
    "write_plan": "files.plan_file",
    "write_shards": "cluster.scan",
}
"""Public name -> the module that defines it."""

__all__ = [
    "BatchLimits",
    "BatchingConfig",
    "Bucketing",
    "Comparison",
    "Diversity",
    "EpochPlan",
    "LengthHistogram",
    "LengthShards",
    "PaddedTokens",
    "PlanStats",
    "Planner",
    "StepTime",
    "Steps",
    "TableTime",
    "__version__",
    "build_plan",
    "compare_strategies",
    "evaluate_boundaries",
    "load_histogram",
    "measure_diversity",
    "open_shards",
    "optimize_boundaries",
    "optimize_curve",
    "read_config",
    "read_lengths",
    "read_plan",
    "save_histogram",
    "scan_lengths",
    "scan_on_ray",
    "write_config",
    "write_plan",
    "write_shards",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'lengthwise' has no attribute {name!r}")
    value = getattr(import_module(f"lengthwise.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, for completion."""
    return sorted(__all__)
