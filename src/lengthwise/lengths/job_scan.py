"""Scan files with any engine: cut them into jobs, run these, put together what they find."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import ConfigError, DataError
from lengthwise.lengths.engine import Failed, until_failure
from lengthwise.lengths.formats import expand, field_of
from lengthwise.lengths.gather import scan_result
from lengthwise.lengths.jobs import (
    ROWS_PER_SHARD,
    FileParts,
    Job,
    Outcome,
    Reading,
    deal,
    file_parts,
    read_job,
    whole_hash,
)
from lengthwise.lengths.manifest import ScanSettings
from lengthwise.lengths.tokens import tokenizer_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.lengths.engine import Engine
    from lengthwise.lengths.formats import ReadOptions
    from lengthwise.lengths.result import ScanResult

    Report = Callable[[int, int | None, str], None]

_FEWEST_BATCHES, _MOST_FILES = 64, 64
"""Files are looked at in so many batches at least, where there are as many, and so many at once."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A source that is ready to be read in jobs.

    Attributes:
        jobs: in source order.
        reading: what all need.
        settings: what was asked for.
        unit: of the jobs' sizes.
        is_histogram: every file is a histogram.
    """

    jobs: list[Job]
    reading: Reading
    settings: ScanSettings
    unit: str
    is_histogram: bool

    def counter(self, progress: Report | None) -> Callable[[int], None]:
        """A function that adds up the sizes of the jobs that are done, and reports them."""
        total = sum(job.size for job in self.jobs) or None
        done = 0

        def add(size: int) -> None:
            nonlocal done
            done += size
            if progress is not None:
                progress(done, total, self.unit)

        return add


def cut_source(
    source: Any,
    column: str | None,
    options: ReadOptions,
    tokenizer: Any,
    engine: Engine,
    rows_per_shard: int = ROWS_PER_SHARD,
) -> Cut:
    """Find the files of a source and its column, and cut it into jobs.

    Args:
        source: a path, URL, glob or directory, or a list of them.
        column: as for every reader.
        options: likewise.
        tokenizer: that of the options, to be told from others.
        engine: looks into the files.
        rows_per_shard: rows after which a job ends.

    Raises:
        ConfigError: a source that is no file, or ``rows_per_shard`` below 1.
        ColumnError: as for every reader.
        DataError: likewise.
    """
    if rows_per_shard < 1:
        raise ConfigError(f"rows_per_shard must be at least 1, got {rows_per_shard}")
    sources = [source] if isinstance(source, (str, os.PathLike)) else source
    listed = isinstance(sources, (list, tuple)) and len(sources) > 0
    if not listed or not all(isinstance(item, (str, os.PathLike)) for item in sources):
        raise ConfigError(
            f"a scan in jobs reads files: give paths, URLs, globs or directories, not a "
            f"{type(source).__name__}"
        )
    paths = expand([str(item) for item in sources])
    reading = Reading(field_of(paths, column, options), options)
    files = _files(reading, paths, engine)
    settings = ScanSettings(
        column=None if reading.field is None else reading.field.name,
        on_bad="error" if options.stop_at_bad else "skip",
        tokenizer=None if tokenizer is None else tokenizer_hash(tokenizer),
        rows_per_shard=rows_per_shard,
        source=whole_hash(paths),
    )
    units = {file.unit for file in files}
    return Cut(
        deal(files, rows_per_shard),
        reading,
        settings,
        units.pop() if len(units) == 1 else "bytes",
        all(file.is_histogram for file in files),
    )


def _files(reading: Reading, paths: Sequence[str], engine: Engine) -> list[FileParts]:
    size = max(1, min(_MOST_FILES, len(paths) // _FEWEST_BATCHES))
    batches = [paths[first : first + size] for first in range(0, len(paths), size)]
    found = dict(until_failure(engine.run(look_at, reading, batches)))
    return [file for number in range(len(batches)) for file in found[number]]


def look_at(reading: Reading, paths: Sequence[str]) -> list[FileParts] | Failed:
    """Look at a batch of files; the first failure stands for all."""
    files = []
    for path in paths:
        found = file_parts(reading, path)
        if isinstance(found, Failed):
            return found
        files.append(found)
    return files


def gather_jobs(cut: Cut, engine: Engine, progress: Report | None) -> ScanResult:
    """Run all jobs and hold what they find in memory.

    Raises:
        BadLengthError: the first bad row in source order, or a source with nothing but bad rows.
        DataError: a file that cannot be read.
    """
    report = cut.counter(progress)
    found: dict[int, Outcome] = {}
    for number, outcome in until_failure(engine.run(read_job, cut.reading, cut.jobs)):
        found[number] = outcome
        report(cut.jobs[number].size)
    outcomes = [found[number] for number in range(len(cut.jobs))]
    files: dict[str, int] = {}
    for outcome in outcomes:
        for span in outcome.spans:
            files[span.file] = files.get(span.file, 0) + span.num_rows
    arrays = [outcome.lengths.astype(np.int64) for outcome in outcomes]
    return scan_result(
        np.concatenate(arrays) if arrays else np.empty(0, np.int64),
        [bad for outcome in outcomes for bad in outcome.bad],
        files,
        cut.settings.column,
        is_histogram=cut.is_histogram and bool(arrays),
    )


def require_rows(cut: Cut) -> None:
    """Refuse what has no order to keep.

    Raises:
        DataError: the source is a histogram.
    """
    if cut.is_histogram and cut.jobs:
        raise DataError(
            "the source is a histogram, which has no order to write down: give --output (output=) "
            "a name that ends in .npy, or scan the data itself"
        )
