"""What the pictures are drawn from: a part of the DFlash run's lengths, and plans of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import lengthwise as lw

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches

HISTOGRAM = Path(__file__).parents[2] / "data" / "dflash_run_histogram.csv"
BOUNDARIES = (0, 728, 1125, 1729, 2474, 3336, 8192)
"""The six best of the run's lengths, as docs/concepts/boundaries.md has them."""


def some(count: int) -> npt.NDArray[np.int64]:
    """So many of the run's lengths, drawn without replacement, always the same."""
    lengths = lw.load_histogram(HISTOGRAM).to_lengths()
    return np.random.default_rng(0).choice(lengths, count, replace=False)


def batches(
    lengths: npt.NDArray[np.int64], limits: lw.BatchLimits, strategy: str, **choices: object
) -> Batches:
    """The batches of the first epoch, in the plan's order."""
    if strategy == "bucketed":
        choices["boundaries"] = BOUNDARIES
    config = lw.BatchingConfig(limits=limits, strategy=strategy, **choices)  # type: ignore[arg-type]
    return lw.Planner(lengths, config).plan(0).batches
