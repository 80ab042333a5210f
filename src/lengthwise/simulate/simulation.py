"""What came of a simulation: throughput, busy shares, waits, queues, the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.simulate.bottleneck import Load, find_bottleneck
from lengthwise.simulate.timeline import Level, time_within
from lengthwise.simulate.waits import drafter_waits, target_waits

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array
    from lengthwise.simulate.bottleneck import Bottleneck
    from lengthwise.simulate.machines import Machines
    from lengthwise.simulate.timeline import Arrivals, Steps
    from lengthwise.simulate.workload import Workload

STEADY_SHARE = 1 / 3
"""Of a run, that must lie between its filling and its end, for them to be left out."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A pipeline's course.

    Attributes:
        workload: what passed through.
        machines: what it passed through.
        arrivals: when what happened to each batch of the target.
        steps: when what happened to each step of the drafter.
    """

    workload: Workload
    machines: Machines
    arrivals: Arrivals
    steps: Steps

    @cached_property
    def seconds(self) -> float:
        """From the first batch given out until all steps are learnt and all batches arrived."""
        return float(max(self.arrivals.arrived.max(), self.steps.learnt.max()))

    @property
    def tokens_per_second(self) -> float:
        """Real tokens of all batches over all the time; 0 where nothing takes time."""
        return self.workload.num_tokens / self.seconds if self.seconds else 0.0

    @cached_property
    def steady(self) -> tuple[float, float]:
        """When the pipeline was full: from its first step's end until its last batch went out.

        All the time, where that is less than a third of it.
        """
        first, last = float(self.steps.learnt.min()), float(self.arrivals.dispatched.max())
        enough = last - first > STEADY_SHARE * self.seconds
        return (first, last) if enough else (0.0, self.seconds)

    @property
    def target_busy(self) -> float:
        """Share of the time that targets are at work; mean of all."""
        return self._busy("target", (0.0, self.seconds))

    @property
    def drafter_busy(self) -> float:
        """The same of the drafter's devices; all of them where they are at the same step."""
        return self._busy("drafter", (0.0, self.seconds))

    @property
    def feeder_busy(self) -> float:
        """The same of the feeders: one a target, or one for all."""
        return self._busy("feeder", (0.0, self.seconds))

    @cached_property
    def waits(self) -> dict[str, dict[str, float]]:
        """Stage -> cause -> seconds that its devices wait, summed over them.

        With their busy time they make up all the time there is: devices x ``seconds``.
        """
        return {
            "target": target_waits(self.arrivals, self.machines, self.seconds),
            "drafter": drafter_waits(self.steps, self.machines.num_lanes, self.seconds),
        }

    @cached_property
    def channel(self) -> Level:
        """Bytes of the channel that are taken."""
        return Level.of(
            self.arrivals.dispatched,
            self.steps.copied,
            self.workload.arrival_bytes,
            self.workload.step_bytes,
        )

    @property
    def peak_channel_bytes(self) -> int:
        """Most bytes of the channel that were ever taken."""
        return self.channel.peak

    @cached_property
    def load(self) -> Load:
        """How full and how busy everything was while it was steady; means."""
        window = self.steady
        length = window[1] - window[0]
        if length <= 0:
            return Load(0.0, 0.0, 0.0, None, None, starting=True)
        has = time_within(self.arrivals.dispatched, self.arrivals.arrived, window).sum() / length
        waits = time_within(self._ready, self.steps.delivered, window).sum() / length
        return Load(
            prefetch=float(has / (self.machines.prefetch_batches * self.machines.num_targets)),
            hidden_states=float(waits),
            pages=self._fullness(window),
            target_busy=self._busy("target", window),
            drafter_busy=self._busy("drafter", window),
        )

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What holds the pipeline up, by the rule by which a running one is judged."""
        return find_bottleneck(self.load)

    def depths(self, num_points: int = 200) -> dict[str, Float64Array | Int64Array]:
        """How full the queues are, sampled at equal distances; arrays of shape (num_points,).

        Returns:
            ``seconds``; ``prefetch``, batches that targets have; ``hidden_states``, steps that are
            ready and that no drafter has yet; ``channel_bytes``.
        """
        seconds = np.linspace(0.0, self.seconds, num_points)
        return {
            "seconds": seconds,
            "prefetch": _count(self.arrivals.dispatched, self.arrivals.arrived).at(seconds),
            "hidden_states": _count(self._ready, self.steps.delivered).at(seconds),
            "channel_bytes": self.channel.at(seconds),
        }

    def to_dict(self) -> dict[str, Any]:
        """All figures in plain numbers, by the names above."""
        found = self.bottleneck
        return {
            "num_targets": self.machines.num_targets,
            "num_drafters": self.machines.num_drafters,
            "independent": self.machines.independent,
            "seconds": self.seconds,
            "num_tokens": self.workload.num_tokens,
            "tokens_per_second": self.tokens_per_second,
            "num_arrivals": self.workload.num_arrivals,
            "num_steps": self.workload.num_steps,
            "target_busy": self.target_busy,
            "drafter_busy": self.drafter_busy,
            "feeder_busy": self.feeder_busy,
            "waits": self.waits,
            "channel_bytes": self.machines.channel_bytes,
            "peak_channel_bytes": self.peak_channel_bytes,
            "bottleneck": None if found is None else found.kind,
        }

    @cached_property
    def _ready(self) -> Float64Array:
        """When each step and all before it were ready."""
        return np.maximum.accumulate(self.steps.ready)

    def _busy(self, stage: str, window: tuple[float, float]) -> float:
        arrivals, steps = self.arrivals, self.steps
        feeders = 1 if self.machines.shared_feeder else self.machines.num_targets
        begin, end, count = {
            "feeder": (arrivals.reading, arrivals.read, feeders),
            "target": (arrivals.started, arrivals.released, self.machines.num_targets),
            "drafter": (steps.begun, steps.learnt, self.machines.num_lanes),
        }[stage]
        whole = count * (window[1] - window[0])
        return float(time_within(begin, end, window).sum() / whole) if whole else 0.0

    def _fullness(self, window: tuple[float, float]) -> float:
        most = self.machines.channel_bytes
        if most is None:
            return 0.0
        # It counts as full when the next batch would find no room.
        usable = max(1.0, most - float(self.workload.arrival_bytes.mean()))
        return self.channel.mean_share(usable, window)


def _count(enter: Float64Array, leave: Float64Array) -> Level:
    ones = np.ones(enter.size, np.int64)
    return Level.of(enter, leave, ones, ones)
