"""What a run has written down, read with tolerance: a damaged line costs that line alone."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Record = dict[str, Any]

_NAMED = 5
"""Damaged lines that a note names."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of a run by kind.

    Attributes:
        steps: one an optimiser step, ascending; of steps that were made again the later.
        evaluations: one a step, ascending.
        flows: how a pipeline was doing, as written.
        totals: the step records that have sums over all steps (``total_seconds``), as written.
        kind: ``"pipeline"``; ``"alone"``: one process runs target and drafter in turn;
            ``"monitor"``: the log of a ``BatchMonitor``.
        notes: what was wrong with the file, in sentences.
    """

    steps: tuple[Record, ...]
    evaluations: tuple[Record, ...]
    flows: tuple[Record, ...]
    totals: tuple[Record, ...]
    kind: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]], notes: Sequence[str] = ()) -> RunRecords:
        """Sort records, in the order in which they were written.

        Raises:
            DataError: none of them is of an optimiser step.
        """
        steps: dict[int, Record] = {}
        evaluations: dict[int, Record] = {}
        flows: list[Record] = []
        totals: list[Record] = []
        for record in records:
            if "flow_seconds" in record:
                flows.append(dict(record))
            elif "eval_loss" in record:
                evaluations[record["step"]] = dict(record)
            elif "loss" in record:
                steps[record["step"]] = dict(record)
                totals += [dict(record)] if "total_seconds" in record else []
        if not steps:
            raise DataError("there is no record of an optimiser step yet; let the run take one")
        is_monitor = any("bucket" in record for record in steps.values())
        return cls(
            tuple(steps[step] for step in sorted(steps)),
            tuple(evaluations[step] for step in sorted(evaluations)),
            tuple(flows),
            tuple(totals),
            "pipeline" if flows else "monitor" if is_monitor else "alone",
            tuple(notes),
        )


def read_records(path: Path) -> RunRecords:
    """Read a ``metrics.jsonl``, or the log of a ``BatchMonitor``.

    A line that is no record is left out and noted, as is a last line that was cut short: the
    run may be writing it, or was killed in the middle of it.

    Raises:
        DataError: there is no such file, or nothing in it is a record of an optimiser step.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: no records; name the output_dir of a run, or the JSONL file that it writes"
        )
    lines = path.read_bytes().split(b"\n")
    cut = lines.pop()
    records, damaged = [], []
    for number, line in enumerate(lines, 1):
        record = _record(line)
        if record is not None:
            records.append(record)
        elif line.strip():
            damaged.append(number)
    notes = _notes(path, damaged)
    last = _record(cut)
    if last is not None:
        records.append(last)  # whole, only the end of the line is missing
    elif cut.strip():
        notes.append(f"{path}: the last line is cut short; it is left out")
    try:
        return RunRecords.of(records, notes)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def figure(record: Mapping[str, Any], name: str) -> float | None:
    """A figure of a record; None where it is unknown or not finite."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def lives(records: Sequence[Record], counters: Sequence[str]) -> list[list[Record]]:
    """Records cut where a run was resumed: there its counters begin anew.

    Args:
        records: as written; those that lack a counter are left out.
        counters: figures that never fall while a process lives.
    """
    found: list[list[Record]] = []
    last = [math.inf] * len(counters)
    for record in records:
        now = [figure(record, name) for name in counters]
        known = [value for value in now if value is not None]
        if len(known) < len(counters):
            continue
        if any(new < old for new, old in zip(known, last, strict=True)):
            found.append([])
        found[-1].append(record)
        last = known
    return found


def _record(line: bytes) -> Record | None:
    """A line as a record: a JSON object with a whole-number step; None for anything else."""
    try:
        value = json.loads(line)
    except ValueError:  # not JSON, or not UTF-8
        return None
    if not isinstance(value, dict):
        return None
    step = value.get("step")
    return value if isinstance(step, int) and not isinstance(step, bool) else None


def _notes(path: Path, damaged: list[int]) -> list[str]:
    if not damaged:
        return []
    shown = ", ".join(map(str, damaged[:_NAMED])) + (", ..." if len(damaged) > _NAMED else "")
    if len(damaged) == 1:
        return [f"{path}: line {shown} is no record; it is left out"]
    return [f"{path}: {len(damaged):,} lines are no records and are left out: {shown}"]
