"""The machine that a simulation runs on: devices, the channel between them, and queues."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Devices and what lies between them. The defaults are those of ``lengthwise.pipeline``.

    Args:
        num_targets: devices that run the target, each on batches of its own.
        num_drafters: devices that train the drafter.
        independent: each drafter device takes a step of its own; else all are at the same step,
            and a step takes what the slowest of them takes.
        channel_bytes: most bytes that wait between targets and drafters, counted from when a batch
            is given to a target until its samples are copied to a drafter; None: without bound.
        prefetch_batches: batches that a target has at once: one runs, the others are read.
        step_depth: steps that a drafter has at once: one is learnt from, the others are copied.
        transfer_bytes_per_second: of each target device to the channel, and of each drafter device
            from it.
        transfers_overlap: a target runs its next batch while the last one's features leave.
        shared_feeder: one feeder reads the batches of all targets; else each target has its own.
        target_speeds: of each target, 1 as measured, 2 twice as fast; None: 1 each.

    Raises:
        ConfigError: a setting that cannot work.
    """

    num_targets: int
    num_drafters: int = 1
    independent: bool = False
    channel_bytes: int | None = None
    prefetch_batches: int = 2
    step_depth: int = 2
    transfer_bytes_per_second: float = math.inf
    transfers_overlap: bool = True
    shared_feeder: bool = False
    target_speeds: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("num_targets", "num_drafters", "prefetch_batches", "step_depth"):
            require_int(name, getattr(self, name), least=1)
        if self.channel_bytes is not None:
            require_int("channel_bytes", self.channel_bytes, least=0, most=2**61)
        _require_rate("transfer_bytes_per_second", self.transfer_bytes_per_second)
        if self.target_speeds is not None:
            object.__setattr__(self, "target_speeds", tuple(self.target_speeds))
            for speed in self.target_speeds:
                _require_rate("target_speeds", speed)
            if len(self.target_speeds) != self.num_targets:
                raise ConfigError(
                    f"target_speeds must have one number for each of num_targets="
                    f"{self.num_targets} targets, got {len(self.target_speeds)}"
                )

    @property
    def speeds(self) -> tuple[float, ...]:
        """Of each target."""
        return self.target_speeds or (1.0,) * self.num_targets

    @property
    def num_lanes(self) -> int:
        """Steps that can be learnt from at the same time."""
        return self.num_drafters if self.independent else 1

    @property
    def step_bytes_per_second(self) -> float:
        """At which a step's samples reach its drafter, or all of them together."""
        return self.transfer_bytes_per_second * (self.num_drafters / self.num_lanes)


def _require_rate(name: str, value: object) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not float(value) > 0:  # type: ignore[arg-type]
        raise ConfigError(f"{name} must be a number above 0, got {value!r}")
