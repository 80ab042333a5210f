"""What a directory of length shards says about itself; the format stands in ``shards.py``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import DataError
from lengthwise.lengths.result import BadRow
from lengthwise.lengths.rows import NUM_LISTED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST = "manifest.json"
UNFINISHED = "unfinished.jsonl"
FORMAT = "lengthwise.lengths"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one source file.

    Attributes:
        file: path or URL.
        first_row: the first of them, from 0, bad rows and blank lines counted.
        num_rows: how many.
    """

    file: str
    first_row: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard.

    Attributes:
        file: its name in the directory.
        num_samples: lengths in it.
        num_bad: rows of its spans without a usable length.
        fingerprint: of its lengths.
        first_bad: the first of these rows.
        key: a hash of what it was made from: files, sizes, dates, rows, column, policy.
        spans: the source rows, in order.
    """

    file: str
    num_samples: int
    num_bad: int
    fingerprint: str
    first_bad: tuple[BadRow, ...]
    key: str
    spans: tuple[Span, ...]

    @property
    def num_rows(self) -> int:
        """Rows it was made from, bad ones included."""
        return self.num_samples + self.num_bad

    @property
    def bad_file(self) -> str:
        """The name of the file with the places of its bad rows, which exists if there are any."""
        return self.file.replace("lengths-", "bad-")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shard:
        """The counterpart of ``dataclasses.asdict``."""
        plain = dict(values)
        plain["first_bad"] = tuple(BadRow(**row) for row in values["first_bad"])
        plain["spans"] = tuple(Span(**span) for span in values["spans"])
        return cls(**plain)


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """What decides the lengths that a scan finds, besides the source.

    Attributes:
        column: the column used; None where there is none to choose.
        on_bad: "error" or "skip".
        tokenizer: a hash of it; None without.
        rows_per_shard: rows after which a shard ends, about.
        source: a hash of the names of the files, in order.
    """

    column: str | None
    on_bad: str
    tokenizer: str | None
    rows_per_shard: int
    source: str


@dataclass(frozen=True, eq=False)
class Manifest:
    """A finished scan.

    Attributes:
        settings: what was asked for.
        dtype: of all shards: "uint16" or "uint32".
        shards: in source order.
        histogram: all lengths, counted.
        fingerprint: of all lengths in order.

    Raises:
        DataError: the totals contradict each other.
    """

    settings: ScanSettings
    dtype: str
    shards: tuple[Shard, ...]
    histogram: LengthHistogram
    fingerprint: str

    def __post_init__(self) -> None:
        """Every sample is counted."""
        if self.num_samples != self.histogram.num_samples:
            raise DataError(
                f"the shards hold {self.num_samples:,} samples, the histogram "
                f"{self.histogram.num_samples:,}"
            )

    @cached_property
    def num_samples(self) -> int:
        """Samples of all shards."""
        return sum(shard.num_samples for shard in self.shards)

    @cached_property
    def num_bad(self) -> int:
        """Rows that were left out."""
        return sum(shard.num_bad for shard in self.shards)

    @property
    def first_bad(self) -> tuple[BadRow, ...]:
        """The first of them in source order."""
        return tuple(bad for shard in self.shards for bad in shard.first_bad)[:NUM_LISTED]


def is_shards(directory: Path) -> bool:
    """Whether a directory holds shards; one that holds an unfinished scan is refused.

    Raises:
        DataError: shards without a manifest.
    """
    if (directory / MANIFEST).is_file():
        with (directory / MANIFEST).open("rb") as file:
            return b'"format": "lengthwise.lengths"' in file.read(64)
    if (directory / UNFINISHED).is_file():
        raise DataError(
            f"{directory} holds the shards of a scan that did not end; run it again with the same "
            f"--output, which goes on where it stood"
        )
    return False


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write ``manifest.json``; it appears whole or not at all, and makes the directory complete."""
    counts = manifest.histogram
    data = {
        "format": FORMAT,
        "version": VERSION,
        "dtype": manifest.dtype,
        "num_samples": manifest.num_samples,
        "num_rows": manifest.num_samples + manifest.num_bad,
        "num_bad": manifest.num_bad,
        "fingerprint": manifest.fingerprint,
        **asdict(manifest.settings),
        "histogram": {"lengths": counts.lengths.tolist(), "counts": counts.counts.tolist()},
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in data.items()]
    shards = ",\n  ".join(json.dumps(asdict(shard)) for shard in manifest.shards)
    lines.append(f'"shards": [\n  {shards}\n ]')
    write_whole(directory / MANIFEST, ("{\n " + ",\n ".join(lines) + "\n}\n").encode())


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a directory of shards.

    Raises:
        DataError: there is none, or it is damaged or of another version.
    """
    path = directory / MANIFEST
    if not path.is_file():
        raise DataError(f"{directory} holds no {MANIFEST}: it is no directory of length shards")
    try:
        data = json.loads(path.read_bytes())
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise DataError(
                f"{path} is {data.get('format')!r}, version {data.get('version')!r}; this is read: "
                f"{FORMAT!r}, version {VERSION}"
            )
        manifest = Manifest(
            settings=ScanSettings(
                **{field.name: data[field.name] for field in fields(ScanSettings)}
            ),
            dtype=str(np.dtype(data["dtype"])),
            shards=tuple(map(Shard.from_dict, data["shards"])),
            histogram=LengthHistogram(
                np.array(data["histogram"]["lengths"], np.int64),
                np.array(data["histogram"]["counts"], np.int64),
            ),
            fingerprint=data["fingerprint"],
        )
        if data["num_samples"] != manifest.num_samples:
            raise DataError(
                f"{path} says {data['num_samples']:,} samples, and lists shards of "
                f"{manifest.num_samples:,}"
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    return manifest


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, also if the machine stops."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
