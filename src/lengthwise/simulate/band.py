"""How far a simulation is to be trusted: the same at the ends of what the costs may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError
from lengthwise.simulate.model import simulate

if TYPE_CHECKING:
    from lengthwise.simulate.machines import Machines
    from lengthwise.simulate.simulation import Simulation
    from lengthwise.simulate.workload import Workload

Factors = tuple[float, float]
"""How many times as long work may take: at best, at worst."""


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
