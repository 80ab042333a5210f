"""A training run as its records tell it: steps, evaluations, how things flowed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError
from lengthwise.report.data import Provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Record = dict[str, Any]
Points = list[tuple[float, float]]

_UNITS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}
_LENGTHS = re.compile(r"loss_length_(\d+)_(\d+)$")
_POSITION = re.compile(r"accuracy_(\d+)$")
_BUSY = re.compile(r"flow_busy_((?:target|drafter)_\d+)$")


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """Everything a training report shows.

    Attributes:
        steps: records of optimiser steps, ascending, one a step.
        evaluations: records of evaluations, ascending, one a step.
        flows: how a pipeline was doing, in the order of time; empty for one process.
        num_repeated: step records that a later one replaced: steps that were made again after the
            run had been interrupted between two checkpoints.
        provenance: where the records come from.
    """

    steps: tuple[Record, ...]
    evaluations: tuple[Record, ...] = ()
    flows: tuple[Record, ...] = ()
    num_repeated: int = 0
    provenance: Provenance = field(default_factory=Provenance)

    @classmethod
    def from_records(
        cls, records: Iterable[Mapping[str, Any]], provenance: Provenance | None = None
    ) -> TrainingRun:
        """Sort the records of a ``metrics.jsonl``.

        Args:
            records: in the order in which they were written.
            provenance: where they come from.

        Raises:
            DataError: a record has no step, or none of them is of an optimiser step.
        """
        steps: dict[int, Record] = {}
        evaluations: dict[int, Record] = {}
        flows: list[Record] = []
        num_steps = 0
        for place, record in enumerate(records):
            step = record.get("step")
            if isinstance(step, bool) or not isinstance(step, int):
                raise DataError(f"training records: record {place} has no whole-number step")
            if "flow_seconds" in record:
                flows.append(dict(record))
            elif "eval_loss" in record:
                evaluations[step] = dict(record)
            elif "loss" in record:
                num_steps += 1
                steps[step] = dict(record)
        if not steps:
            raise DataError("training records: there is no record of an optimiser step yet")
        return cls(
            tuple(steps[step] for step in sorted(steps)),
            tuple(evaluations[step] for step in sorted(evaluations)),
            tuple(_on_one_clock(flows)),
            num_steps - len(steps),
            provenance or Provenance(),
        )

    def over_steps(self, name: str) -> Points:
        """A figure over optimiser steps; where it is unknown there is no point."""
        return points(self.steps, "step", name)

    def over_evaluations(self, name: str) -> Points:
        """A figure of the evaluations, over optimiser steps."""
        return points(self.evaluations, "step", name)

    def over_time(self, name: str) -> Points:
        """A figure of the pipeline, over the time that it has run, in :attr:`time_unit`."""
        return [
            (self.time(row), value) for row in self.flows if (value := known(row, name)) is not None
        ]

    @property
    def time_unit(self) -> str:
        """In which the pipeline's time has one to three digits."""
        return next(unit for unit, seconds in _UNITS.items() if self._seconds >= 3 * seconds)

    @property
    def _seconds(self) -> float:
        return max(3.0, self.flows[-1]["seconds"]) if self.flows else 3.0

    def time(self, flow: Mapping[str, Any]) -> float:
        """When a record of the pipeline was made, in :attr:`time_unit`."""
        return float(flow["seconds"]) / _UNITS[self.time_unit]

    @property
    def lengths(self) -> list[tuple[str, str]]:
        """Name of the figure and words for each length class, ascending."""
        found = sorted(
            (int(match[1]), int(match[2]), name)
            for name in self.steps[-1]
            if (match := _LENGTHS.match(name))
        )
        return [(name, f"{lo:,} to {hi:,} tokens") for lo, hi, name in found]

    @property
    def positions(self) -> list[int]:
        """Positions of a block whose accuracy is known, from 1."""
        return sorted(int(match[1]) for name in self.steps[-1] if (match := _POSITION.match(name)))

    @property
    def devices(self) -> list[str]:
        """Short names of a pipeline's processes, targets first."""
        names = {match[1] for row in self.flows for name in row if (match := _BUSY.match(name))}
        return sorted(names, key=lambda name: (name.startswith("drafter"), name))


def points(rows: Iterable[Mapping[str, Any]], x: str, y: str) -> Points:
    """Pairs of two figures where both are known, finite numbers."""
    pairs = ((known(row, x), known(row, y)) for row in rows)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def known(row: Mapping[str, Any], name: str) -> float | None:
    """A figure; None where it is unknown or not finite."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _on_one_clock(flows: list[Record]) -> list[Record]:
    """Give each record ``seconds`` that go on where a resumed run begins to count anew."""
    shift = last = 0.0
    for record in flows:
        second = known(record, "flow_seconds") or 0.0
        if second + shift < last:
            shift = last
        last = record["seconds"] = second + shift
    return flows
