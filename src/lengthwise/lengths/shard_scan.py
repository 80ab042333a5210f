"""Scan a source into a directory of shards, and go on where an earlier scan stood."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING

import numpy as np

from lengthwise.core.fingerprint import lengths_fingerprint, parts_fingerprint
from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import ConfigError, DataError
from lengthwise.lengths.checks import warnings_for
from lengthwise.lengths.engine import until_failure
from lengthwise.lengths.gather import require_some
from lengthwise.lengths.jobs import read_job
from lengthwise.lengths.manifest import (
    MANIFEST,
    UNFINISHED,
    Manifest,
    Shard,
    read_manifest,
    write_manifest,
    write_whole,
)
from lengthwise.lengths.result import BadRow, SourceFile
from lengthwise.lengths.shards import LengthShards, open_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lengthwise.core.limits import Int64Array
    from lengthwise.lengths.engine import Engine
    from lengthwise.lengths.jobs import Job, Outcome, Reading
    from lengthwise.lengths.manifest import ScanSettings

LONGEST = 2**32 - 1
"""The longest length of a shard, in tokens."""
_OURS = ("lengths-*.npy", "bad-*.npy", ".lengths-*.npy.part", ".bad-*.npy.part", MANIFEST)


@dataclass(frozen=True, slots=True, eq=False)
class ShardScan:
    """What a scan into shards found; as :class:`~lengthwise.lengths.result.ScanResult`.

    Attributes:
        shards: the lengths.
        num_found: shards that an earlier scan had finished.
        files: the files read, in order.
        warnings: what looks wrong though every row is valid, one sentence each.
    """

    shards: LengthShards
    num_found: int
    files: tuple[SourceFile, ...]
    warnings: tuple[str, ...] = ()

    @property
    def histogram(self) -> LengthHistogram:
        """All lengths, counted."""
        return self.shards.histogram

    @property
    def num_kept(self) -> int:
        """Samples with a usable length."""
        return self.shards.num_samples

    @property
    def num_bad(self) -> int:
        """Rows left out."""
        return self.shards.manifest.num_bad

    @property
    def num_rows_read(self) -> int:
        """Rows of the source, bad ones included."""
        return self.num_kept + self.num_bad

    @property
    def first_bad(self) -> tuple[BadRow, ...]:
        """The first rows left out, in source order."""
        return self.shards.manifest.first_bad

    @property
    def column(self) -> str | None:
        """The column used; None where there is none to choose."""
        return self.shards.manifest.settings.column

    @property
    def ordered(self) -> LengthShards:
        """The lengths in source order."""
        return self.shards

    def source_rows(self, samples: Int64Array) -> Int64Array:
        """The rows of some samples in the concatenated source, counted from 0."""
        return self.shards.source_rows(samples)


def scan_into(
    directory: Path,
    jobs: Sequence[Job],
    reading: Reading,
    settings: ScanSettings,
    engine: Engine,
    report: Callable[[int], None],
) -> ShardScan:
    """Run what is missing of some jobs, and write a shard for each.

    A shard is written as soon as its job is done, whole or not at all, and noted in
    ``unfinished.jsonl``; the manifest comes last. Whatever ends the scan in between, the next one
    with the same settings goes on from there, and writes the same bytes.

    Args:
        directory: where to; made if its parent is there.
        jobs: of the whole source.
        reading: what they need.
        settings: what was asked for.
        engine: who runs them.
        report: called with the size of each job that is done.

    Raises:
        ConfigError: the directory holds another scan, or anything else.
        BadLengthError: a bad row, as from every reader, or a source with no other rows.
        DataError: a file that cannot be read or was changed meanwhile.
    """
    keys = [job.key(settings) for job in jobs]
    shards = _finished(directory, settings, keys)
    num_found = len(shards)
    missing = [number for number in range(len(jobs)) if number not in shards]
    report(sum(jobs[number].size for number in shards))
    with (directory / UNFINISHED).open("ab") as log:
        results = engine.run(read_job, reading, [jobs[number] for number in missing])
        for place, outcome in until_failure(results):
            number = missing[place]
            shard = _write(directory, number, keys[number], outcome)
            _note(log, asdict(shard))
            shards[number] = shard
            report(jobs[number].size)
    _complete(directory, settings, [shards[number] for number in range(len(jobs))])
    opened = open_shards(directory)
    files: dict[str, int] = {part.path: 0 for job in jobs for part in job.slices}
    for shard in opened.manifest.shards:
        for span in shard.spans:
            files[span.file] += span.num_rows
    scan = ShardScan(opened, num_found, tuple(SourceFile(*file) for file in files.items()))
    return ShardScan(opened, num_found, scan.files, tuple(warnings_for(scan)))


def _finished(directory: Path, settings: ScanSettings, keys: Sequence[str]) -> dict[int, Shard]:
    """What an earlier scan left that still holds; leaves ``unfinished.jsonl`` with just that.

    Raises:
        ConfigError: the directory holds another scan, or anything else.
    """
    try:
        directory.mkdir(exist_ok=True)
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise ConfigError(
            f"{str(directory)!r} cannot be made: its parent must be a directory, and no file may "
            f"have its name"
        ) from None
    log = directory / UNFINISHED
    manifest = directory / MANIFEST
    lines = log.read_bytes().splitlines() if log.is_file() else []
    noted = [Shard.from_dict(values) for values in filter(None, map(_parsed, lines[1:]))]
    if manifest.is_file():
        earlier = read_manifest(directory)
        _check_same(directory, asdict(earlier.settings), settings)
        noted += earlier.shards
    elif lines:
        _check_same(directory, _parsed(lines[0]) or {}, settings)
    elif any(path.suffix != ".part" for path in directory.iterdir()):
        raise ConfigError(
            f"{directory} holds something else: give --output (output=) a new directory"
        )
    numbers = {key: number for number, key in enumerate(keys)}
    found = {
        numbers[shard.key]: shard
        for shard in noted
        if shard.key in numbers
        and shard.file == _name(numbers[shard.key])
        and _holds(directory, shard)
    }
    content = [asdict(settings), *(asdict(found[number]) for number in sorted(found))]
    write_whole(log, b"".join(json.dumps(line).encode() + b"\n" for line in content))
    manifest.unlink(missing_ok=True)
    return found


def _parsed(line: bytes) -> dict[str, object] | None:
    """A line of the log; None for one that was cut off."""
    try:
        found: dict[str, object] = json.loads(line)
    except ValueError:
        return None
    return found


def _check_same(directory: Path, then: dict[str, object], now: ScanSettings) -> None:
    differing = [
        "other files" if name == "source" else f"{name} = {then.get(name)!r}, not {value!r}"
        for name, value in asdict(now).items()
        if then.get(name) != value
    ]
    if differing:
        raise ConfigError(
            f"{directory} holds the shards of another scan ({'; '.join(differing)}): give --output "
            f"(output=) a new directory, or remove this one"
        )


def _holds(directory: Path, shard: Shard) -> bool:
    """Whether a shard's files are there and as they were."""
    try:
        if shard.num_bad:
            bad = np.load(directory / shard.bad_file, allow_pickle=False)
            if bad.size != shard.num_bad:
                return False
        lengths = np.load(directory / shard.file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    return lengths_fingerprint(lengths) == shard.fingerprint


def _name(number: int) -> str:
    return f"lengths-{number:05d}.npy"


def _write(directory: Path, number: int, key: str, outcome: Outcome) -> Shard:
    good = outcome.lengths > 0
    lengths, bad = outcome.lengths[good], np.flatnonzero(~good)
    if lengths.size and int(lengths.max()) > LONGEST:
        files = ", ".join(span.file for span in outcome.spans[:3])
        raise DataError(
            f"{files}: a length of {int(lengths.max()):,} tokens is more than a shard holds "
            f"({LONGEST:,}). Is it the right column? If so, save the lengths as .npy"
        )
    shard = Shard(
        file=_name(number),
        num_samples=int(lengths.size),
        num_bad=int(bad.size),
        fingerprint=lengths_fingerprint(lengths),
        first_bad=outcome.bad,
        key=key,
        spans=outcome.spans,
    )
    if bad.size:
        _save(directory / shard.bad_file, bad)
    _save(directory / shard.file, lengths)
    return shard


def _save(path: Path, array: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, array)
    write_whole(path, content.getvalue())


def _note(log: IO[bytes], values: dict[str, object]) -> None:
    log.write(json.dumps(values).encode() + b"\n")
    log.flush()


def _complete(directory: Path, settings: ScanSettings, shards: Sequence[Shard]) -> None:
    """Bring all shards to one dtype, write the manifest, and remove what does not belong."""
    paths = [directory / shard.file for shard in shards]
    counted = [
        LengthHistogram.from_lengths(np.load(path, mmap_mode="r", allow_pickle=False))
        for path in paths
    ]
    histogram = LengthHistogram.merge(counted)
    bad = [row for shard in shards for row in shard.first_bad]
    num_rows = sum(shard.num_rows for shard in shards)
    if bad:
        require_some(histogram.num_samples, num_rows, bad)
    short = not histogram.num_samples or histogram.longest < 2**16
    dtype = np.dtype(np.uint16 if short else np.uint32)
    for path in paths:
        lengths = np.load(path, mmap_mode="r", allow_pickle=False)
        if lengths.dtype != dtype:
            _save(path, lengths.astype(dtype))
    fingerprint = parts_fingerprint(
        (np.load(path, mmap_mode="r", allow_pickle=False) for path in paths), histogram.num_samples
    )
    write_manifest(directory, Manifest(settings, dtype.name, tuple(shards), histogram, fingerprint))
    belong = {shard.file for shard in shards} | {MANIFEST}
    belong |= {shard.bad_file for shard in shards if shard.num_bad}
    for pattern in (*_OURS, UNFINISHED):
        for path in directory.glob(pattern):
            if path.name not in belong:
                path.unlink()
