"""How far a simulation is to be trusted: the same at the ends of what the costs may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.errors import ConfigError
from lengthwise.simulate.model import simulate

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array
    from lengthwise.simulate.machines import Machines
    from lengthwise.simulate.simulation import Simulation
    from lengthwise.simulate.workload import Workload

Factors = tuple[float, float]
"""How many times as long work may take: at best, at worst."""


class FittedCost(Protocol):
    """What a band needs of a fitted cost: seconds, and an interval for their sum.

    ``lengthwise.calibrate.CostFit`` is one.
    """

    def seconds(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Of every batch; shape (M,)."""
        ...

    def interval(
        self, batch_size: Int64Array, longest: Int64Array, level: float
    ) -> tuple[float, float]:
        """Of all batches together, with probability ``level``: from, and up to."""
        ...


@dataclass(frozen=True, slots=True)
class Band:
    """A simulation, and its two ends.

    Attributes:
        middle: with the costs as they are.
        slow: where both stages take as long as they may.
        fast: where both are as quick as they may be.
    """

    middle: Simulation
    slow: Simulation
    fast: Simulation

    @property
    def low(self) -> float:
        """Tokens a second at worst."""
        return self.slow.tokens_per_second

    @property
    def high(self) -> float:
        """Tokens a second at best."""
        return self.fast.tokens_per_second

    def to_dict(self) -> dict[str, Any]:
        """The middle's figures, and of tokens a second ``low`` and ``high``."""
        return {**self.middle.to_dict(), "low": self.low, "high": self.high}


def spread(
    fit: FittedCost, batch_size: Int64Array, longest: Int64Array, level: float = 0.9
) -> Factors:
    """How many times as long as fitted some batches may take together.

    Args:
        fit: of one stage.
        batch_size: samples of each batch; int64, shape (M,).
        longest: tokens that each is padded to; int64, shape (M,).
        level: probability that the truth is between.
    """
    whole = float(fit.seconds(batch_size, longest).sum())
    low, high = fit.interval(batch_size, longest, level)
    return (low / whole, high / whole) if whole else (1.0, 1.0)


def simulate_band(
    workload: Workload,
    machines: Machines,
    *,
    target: Factors = (1.0, 1.0),
    drafter: Factors = (1.0, 1.0),
) -> Band:
    """Simulate, and simulate again with both stages at the ends of what they may take.

    The band is that of the costs alone, and as wide as both stages together can make it. What the
    model leaves out (messages, a machine that others use too) is not in it.

    Raises:
        ConfigError: factors that are not around 1.
    """
    for name, (low, high) in (("target", target), ("drafter", drafter)):
        if not 0 < low <= 1 <= high:
            raise ConfigError(f"factors of the {name} must be around 1, got {low} and {high}")
    return Band(
        middle=simulate(workload, machines),
        slow=simulate(workload.scaled(target=target[1], drafter=drafter[1]), machines),
        fast=simulate(workload.scaled(target=target[0], drafter=drafter[0]), machines),
    )
