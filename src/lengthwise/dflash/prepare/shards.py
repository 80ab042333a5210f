"""Samples on disk: one Parquet file a run of source rows, complete or not there at all.

Everything that resuming needs stands in the file's own metadata: which rows it covers and what
became of them. A file is written under another name, flushed and renamed, so a run that is killed
at any moment leaves finished files and at most a temporary one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lengthwise.core.file_format import SHARD
from lengthwise.dflash.prepare.sources import Position
from lengthwise.errors import DataError
from lengthwise.lengths.arrow import require_pyarrow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lengthwise.dflash.prepare.conversations import Conversation, SourceRow
    from lengthwise.dflash.prepare.masks import Draft

METADATA_KEY = b"lengthwise.shard"
GROUP_TOKENS = 1 << 15
"""Tokens of a row group, about: what reading one sample at random has to decode."""
NUM_LISTED = 20
"""Rows with a problem that the card names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A row of which something is missing in the samples."""

    file: str
    row: int
    rule: str
    detail: str


@dataclass(slots=True)
class Tally:
    """What became of rows; tallies add up.

    Attributes:
        rows: rows read.
        answers: answers generated, or given in the source.
        retokenized: answers that are tokens read back from a server's text.
        unfinished: answers that reached ``max_new_tokens``.
        samples: samples made.
        truncated: samples cut to ``max_length``.
        tokens: tokens of the samples.
        loss_tokens: those with loss.
        bad_rows: rows that gave nothing since they break a rule, by rule.
        dropped_answers: prompts without a kept answer, by reason.
        dropped_samples: samples left out, by reason.
        problems: the first of all these.
    """

    rows: int = 0
    answers: int = 0
    retokenized: int = 0
    unfinished: int = 0
    samples: int = 0
    truncated: int = 0
    tokens: int = 0
    loss_tokens: int = 0
    bad_rows: Counter[str] = field(default_factory=Counter)
    dropped_answers: Counter[str] = field(default_factory=Counter)
    dropped_samples: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        for one in fields(self):
            both = getattr(self, one.name) + getattr(other, one.name)
            setattr(self, one.name, both)
        self.problems = self.problems[:NUM_LISTED]

    def note(self, row: SourceRow, rule: str, detail: str) -> None:
        """Name a row with a problem, while there is room."""
        if len(self.problems) < NUM_LISTED:
            problem = Problem(row.file, row.row, rule, detail[:400])
            self.problems.append(problem)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ``asdict`` of Python 3.11 cannot copy a Counter."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {k: dict(v) if isinstance(v, Counter) else v for k, v in found.items()}
        return {**plain, "problems": [asdict(problem) for problem in self.problems]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Tally:
        """The counterpart of :meth:`to_dict`."""
        counters = ("bad_rows", "dropped_answers", "dropped_samples")
        plain: dict[str, Any] = {k: Counter(v) if k in counters else v for k, v in values.items()}
        plain["problems"] = [Problem(**problem) for problem in values["problems"]]
        return cls(**plain)


@dataclass(frozen=True, slots=True)
class Shard:
    """What a finished file says about itself."""

    path: Path
    end: Position
    settings: dict[str, Any]
    tally: Tally


def shard_path(directory: Path, number: int) -> Path:
    """Where shard ``number`` goes."""
    return directory / f"samples-{number:05d}.parquet"


def write_shard(
    path: Path,
    samples: Sequence[tuple[Conversation, Draft]],
    tally: Tally,
    *,
    end: Position,
    settings: dict[str, Any],
) -> None:
    """Write a shard in one step: afterwards it is there with all its samples, or not at all.

    Args:
        path: where it goes.
        samples: with the conversations they come from, in source order.
        tally: what became of its rows.
        end: the place in the source after its last row.
        settings: those it was made with.
    """
    require_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    state = {**SHARD.stamp(), "end": asdict(end), "settings": settings, "tally": tally.to_dict()}
    schema = _schema().with_metadata({METADATA_KEY: json.dumps(state).encode()})
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=["task", "source", "source_file"],
            store_schema=True,
        ) as writer:
            for group in _groups(samples):
                writer.write_table(pa.Table.from_pylist([_row(*one) for one in group], schema))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("input_ids", pa.list_(pa.int32())),
            pa.field("loss_mask", pa.list_(pa.bool_())),
            pa.field("seq_len", pa.int32()),
            pa.field("num_loss_tokens", pa.int32()),
            pa.field("source_file", pa.string()),
            pa.field("source_row", pa.int64()),
            pa.field("turn", pa.int32()),
            pa.field("task", pa.string()),
            pa.field("source", pa.string()),
        ]
    )


def _row(conversation: Conversation, draft: Draft) -> dict[str, Any]:
    return {
        "input_ids": draft.input_ids,
        "loss_mask": draft.loss_mask,
        "seq_len": len(draft.input_ids),
        "num_loss_tokens": sum(draft.loss_mask),
        "source_file": conversation.origin.file,
        "source_row": conversation.origin.row,
        "turn": draft.turn,
        "task": conversation.task,
        "source": conversation.source,
    }


def _groups(
    samples: Sequence[tuple[Conversation, Draft]],
) -> list[list[tuple[Conversation, Draft]]]:
    groups: list[list[tuple[Conversation, Draft]]] = []
    tokens = GROUP_TOKENS
    for one in samples:
        if tokens >= GROUP_TOKENS:
            groups.append([])
            tokens = 0
        groups[-1].append(one)
        tokens += len(one[1].input_ids)
    return groups


def read_shard(path: Path) -> Shard:
    """What a finished shard says about itself; its samples are not read.

    Raises:
        DataError: it is no shard of ours, or damaged.
    """
    require_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path).metadata or {}
        state = json.loads(metadata[METADATA_KEY])
        SHARD.check(state, path)
        return Shard(
            path,
            Position(**state["end"]),
            state["settings"],
            Tally.from_dict(state["tally"]),
        )
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise DataError(
            f"{path} is damaged or was not written by `lengthwise dflash prepare` ({error}); "
            f"remove it to have its rows prepared again, or choose another --output"
        ) from None


def finished_shards(directory: Path) -> list[Shard]:
    """The finished shards of a directory, in order; leftovers of a killed run are removed.

    Raises:
        DataError: one is damaged, or one in the middle is missing.
    """
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink()
    files = sorted(directory.glob("samples-*.parquet"))
    for number, file in enumerate(files):
        if file != shard_path(directory, number):
            raise DataError(
                f"{directory}: {shard_path(directory, number).name} is missing although "
                f"{file.name} is there; remove the files from there on, or start anew elsewhere"
            )
    return [read_shard(file) for file in files]
