"""How to share out devices between targets and drafters, and what one device more buys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError
from lengthwise.simulate.model import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.simulate.machines import Machines
    from lengthwise.simulate.simulation import Simulation
    from lengthwise.simulate.workload import Workload

MakeWorkload: TypeAlias = "Callable[[int, int], Workload]"
"""The work for so many targets and so many drafters: a step's time depends on them."""
MakeMachines: TypeAlias = "Callable[[int, int], Machines]"
"""The machine with so many targets and so many drafters."""

EVERY_SPLIT = 64
"""Devices up to which every split is simulated."""
NEIGHBOURS = 8
"""Splits to each side of the crossing that are simulated with more devices."""


@dataclass(frozen=True, slots=True)
class BestSplit:
    """Splits of devices, each simulated.

    Attributes:
        splits: by number of targets, rising; all there are, or those around the best.
        best: the one with most tokens a second; of equals the one with fewest targets.
    """

    splits: tuple[Simulation, ...]
    best: Simulation

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``best`` and ``splits``, each as `Simulation.to_dict` has it."""
        return {
            "best": self.best.to_dict(),
            "splits": [split.to_dict() for split in self.splits],
        }


@dataclass(frozen=True, slots=True)
class OneMore:
    """What one device more of each kind buys.

    Attributes:
        now: as it is.
        target: with one target more.
        drafter: with one drafter more.
    """

    now: Simulation
    target: Simulation
    drafter: Simulation

    @property
    def gains(self) -> dict[str, float]:
        """Tokens a second over those of now, less 1, for ``target`` and ``drafter``."""
        rate = self.now.tokens_per_second
        return {
            kind: one.tokens_per_second / rate - 1 if rate else 0.0
            for kind, one in (("target", self.target), ("drafter", self.drafter))
        }


def best_split(
    make_workload: MakeWorkload, num_devices: int, machines: Machines | MakeMachines
) -> BestSplit:
    """Simulate how devices can be shared out, and find the quickest way.

    Up to 64 devices every split is simulated. With more, targets could do more and drafters less
    the more devices are targets; so the split at which both could do the same is found by halving,
    and the eight splits to each side of it are simulated.

    Args:
        make_workload: the work for so many targets and drafters.
        num_devices: to share out; at least one of each kind.
        machines: what is the same for all splits; or a function of the numbers of targets and
            drafters, where more than these two numbers changes (as a channel that grows).

    Raises:
        ConfigError: fewer than two devices, or machines with speeds of single targets.
    """
    count = require_int("num_devices", num_devices, least=2)
    make_machines = _maker(machines)
    candidates = range(1, count)
    if count > EVERY_SPLIT:
        middle = _crossing(make_workload, make_machines, count)
        first = max(1, min(middle - NEIGHBOURS, count - 2 * NEIGHBOURS - 1))
        candidates = range(first, min(count, first + 2 * NEIGHBOURS + 1))
    splits = tuple(
        simulate(make_workload(number, count - number), make_machines(number, count - number))
        for number in candidates
    )
    return BestSplit(splits, max(splits, key=lambda one: one.tokens_per_second))


def one_more(
    make_workload: MakeWorkload, machines: Machines | MakeMachines, now: tuple[int, int]
) -> OneMore:
    """Simulate with one device more of each kind.

    Args:
        make_workload: the work for so many targets and drafters.
        machines: as for :func:`best_split`.
        now: targets and drafters that there are.
    """
    make_machines = _maker(machines)
    found = [
        simulate(make_workload(*split), make_machines(*split))
        for split in (now, (now[0] + 1, now[1]), (now[0], now[1] + 1))
    ]
    return OneMore(*found)


def _maker(machines: Machines | MakeMachines) -> MakeMachines:
    if callable(machines):
        return machines
    if machines.target_speeds is not None:
        raise ConfigError(
            "target_speeds belong to one number of targets; give a function that makes machines"
        )

    def make(num_targets: int, num_drafters: int) -> Machines:
        return replace(machines, num_targets=num_targets, num_drafters=num_drafters)

    return make


def _crossing(make_workload: MakeWorkload, make_machines: MakeMachines, count: int) -> int:
    """The fewest targets with which drafters, if neither waited, would need longer."""
    least, most = 1, count - 1
    while least < most:
        number = (least + most) // 2
        split = (number, count - number)
        work, machines = make_workload(*split), make_machines(*split)
        target = float(work.arrival_seconds.sum()) / sum(machines.speeds)
        drafter = float(work.step_seconds.sum()) / machines.num_lanes
        if drafter >= target:
            most = number
        else:
            least = number + 1
    return least
