"""A source cut into jobs that can be read anywhere, and what one job finds.

The cut depends on the files alone, never on who reads them: a job is a run of parts (row groups of
a Parquet file, other files whole) of one file or of several in a row.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import DataError, LengthwiseError
from lengthwise.lengths.engine import Failed
from lengthwise.lengths.formats import ReadOptions, format_of
from lengthwise.lengths.manifest import ScanSettings, Span
from lengthwise.lengths.rows import NUM_LISTED
from lengthwise.lengths.storage import FileIdentity, identity_of, is_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.result import BadRow

ROWS_PER_SHARD = 1 << 20
"""Rows after which a job ends, unless told."""
BYTES_PER_ROW = 256
"""Stored bytes that count as a row where rows are not known: of JSON Lines and text."""
PARTS_PER_JOB = 64
"""Parts after which it ends: of long token lists a part has few rows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What all jobs of a scan have in common.

    Attributes:
        field: the column; None where there is none to choose.
        options: as for every reader.
    """

    field: Field | None
    options: ReadOptions


@dataclass(frozen=True, slots=True)
class FileParts:
    """A file, and how much each of its parts holds.

    Attributes:
        path: path or URL.
        identity: its size and date.
        sizes: of each part; None if unknown.
        unit: what they count: "rows" or "bytes".
        is_histogram: the file is a histogram.
    """

    path: str
    identity: FileIdentity
    sizes: tuple[int | None, ...]
    unit: str
    is_histogram: bool


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive parts of one file.

    Attributes:
        path: of the file.
        identity: the file's size and date when it was cut.
        first: the first part.
        stop: the part after the last.
        first_row: rows of the file before them.
    """

    path: str
    identity: FileIdentity
    first: int
    stop: int
    first_row: int


@dataclass(frozen=True, slots=True)
class Job:
    """What one call reads.

    Attributes:
        slices: in source order.
        size: how much it is, in the unit of its files.
    """

    slices: tuple[Slice, ...]
    size: int

    def key(self, settings: ScanSettings) -> str:
        """A hash of all that decides what it finds; 32 hex digits."""
        content = json.dumps([asdict(settings), [asdict(part) for part in self.slices]])
        return hashlib.sha256(content.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a job found.

    Attributes:
        lengths: of each row, 0 where it has none; uint16, or uint32 or int64 where one needs it.
        bad: the first rows that have none.
        spans: the rows, file by file.
    """

    lengths: npt.NDArray[np.integer[Any]]
    bad: tuple[BadRow, ...]
    spans: tuple[Span, ...]


def file_parts(reading: Reading, path: str) -> FileParts | Failed:
    """Look at one file: at the footer of a Parquet file, else at no more than its size."""
    try:
        identity = identity_of(path)
        parts = format_of(path).parts(path, reading.field, reading.options)
    except LengthwiseError as error:
        return _failed(error, [path])
    return FileParts(
        path,
        identity,
        tuple(part.size for part in parts),
        parts[0].unit if parts else "rows",
        any(part.is_histogram for part in parts),
    )


def deal(files: Iterable[FileParts], rows_per_shard: int) -> list[Job]:
    """Cut files into jobs, in source order.

    Args:
        files: in source order.
        rows_per_shard: rows after which a job ends; a part is never cut.
    """
    jobs: list[Job] = []
    parts: list[Slice] = []
    rows = size = 0
    for file in files:
        row = 0
        for number, part in enumerate(file.sizes):
            parts.append(Slice(file.path, file.identity, number, number + 1, row))
            size += part or 0
            if part is None:
                rows = rows_per_shard
            elif file.unit == "rows":
                rows, row = rows + part, row + part
            else:
                rows += 1 + part // BYTES_PER_ROW
            if rows >= rows_per_shard or len(parts) >= PARTS_PER_JOB:
                jobs.append(Job(_joined(parts), size))
                parts, rows, size = [], 0, 0
    if parts:
        jobs.append(Job(_joined(parts), size))
    return jobs


def _joined(parts: list[Slice]) -> tuple[Slice, ...]:
    """Neighbours of one file as one slice."""
    runs = [list(run) for _, run in groupby(parts, key=lambda part: part.path)]
    return tuple(
        Slice(run[0].path, run[0].identity, run[0].first, run[-1].stop, run[0].first_row)
        for run in runs
    )


def read_job(reading: Reading, job: Job) -> Outcome | Failed:
    """The lengths of one job's rows."""
    try:
        return _read(reading, job)
    except LengthwiseError as error:
        return _failed(error, [part.path for part in job.slices])


def _failed(error: LengthwiseError, paths: list[str]) -> Failed:
    """An error as a result; one of the network is raised, since another attempt may succeed."""
    if isinstance(error.__cause__, OSError) and any(map(is_url, paths)):
        raise error
    return Failed(error)


def _read(reading: Reading, job: Job) -> Outcome:
    bad: list[BadRow] = []
    arrays, spans = [], []
    for part in job.slices:
        rows = 0
        for piece in _pieces(reading, part):
            arrays.append(smallest(piece.lengths))
            bad += piece.bad[: NUM_LISTED - len(bad)]
            rows += len(piece.lengths)
        spans.append(Span(part.path, part.first_row, rows))
    # Arrays of unlike width become one of the widest.
    lengths = np.concatenate(arrays) if arrays else np.empty(0, np.uint16)
    return Outcome(lengths, tuple(bad), tuple(spans))


def _pieces(reading: Reading, part: Slice) -> Iterable[Any]:
    if identity_of(part.path) != part.identity:
        raise DataError(f"{part.path} was changed while it was scanned; scan it again")
    parts = format_of(part.path).parts(part.path, reading.field, reading.options)
    for one in parts[part.first : part.stop]:
        yield from one.read(_not_told)


def _not_told(_done: int) -> None:
    """Progress is told by the job."""


def smallest(lengths: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """The same lengths as uint16, or uint32 or int64 where one needs it."""
    longest = int(lengths.max()) if lengths.size else 0
    fitting = np.uint16 if longest < 2**16 else np.uint32 if longest < 2**32 else np.int64
    return lengths.astype(fitting)


def whole_hash(paths: Iterable[str]) -> str:
    """A hash of the names of a source's files; 32 hex digits."""
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()[:32]
