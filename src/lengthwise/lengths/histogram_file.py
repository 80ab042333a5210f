"""Save and load a :class:`~lengthwise.core.histogram.LengthHistogram`: CSV, JSON or NPZ."""

from __future__ import annotations

import codecs
import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.file_format import HISTOGRAM
from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import BadLengthError, ConfigError, DataError
from lengthwise.lengths.compressed import open_bytes
from lengthwise.lengths.rows import Part, Piece
from lengthwise.lengths.storage import is_url

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from lengthwise.core.limits import Int64Array

CSV_HEADER = ["length", "count"]
KEYS = frozenset({"lengths", "counts"})
LARGEST_EXPANSION = 2**33
"""Samples above which a histogram is not written out as one length a sample (64 GiB)."""


def save_histogram(histogram: LengthHistogram, path: str | os.PathLike[str]) -> None:
    """Write a histogram; the suffix chooses the format: .csv (``length,count``), .json or .npz.

    The file appears whole or not at all.

    Raises:
        ConfigError: another suffix.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.part")
    if target.suffix == ".csv":
        lines = ["length,count"]
        pairs = zip(histogram.lengths.tolist(), histogram.counts.tolist(), strict=True)
        lines += [f"{length},{count}" for length, count in pairs]
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif target.suffix == ".json":
        data = HISTOGRAM.stamp()
        data |= {"lengths": histogram.lengths.tolist(), "counts": histogram.counts.tolist()}
        part.write_text(json.dumps(data) + "\n", encoding="utf-8")
    elif target.suffix == ".npz":
        with part.open("wb") as file:
            arrays: dict[str, Any] = {"lengths": histogram.lengths, "counts": histogram.counts}
            np.savez_compressed(file, **arrays, **HISTOGRAM.stamp())
    else:
        raise ConfigError(f"a histogram is saved as .csv, .json or .npz, not {target.name!r}")
    part.replace(target)


def load_histogram(path: str | os.PathLike[str]) -> LengthHistogram:
    """Read a histogram that :func:`save_histogram` wrote, or a CSV headed ``length,count``.

    Raises:
        BadLengthError: a length below 1 or a cell that is no whole number; names the line.
        DataError: the file holds something else.
        ConfigError: another suffix.
    """
    source = Path(path)
    if {".csv", ".tsv"} & set(source.suffixes):
        pairs = list(_csv_pairs(source))
        return _build(source, [length for length, _ in pairs], [count for _, count in pairs])
    if source.suffix == ".json":
        try:
            data = json.loads(source.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{source} is not JSON: {error}") from None
        return _from_mapping(source, data)
    if source.suffix == ".npz":
        with np.load(source, allow_pickle=False) as arrays:
            return _from_mapping(source, dict(arrays))
    raise ConfigError(f"a histogram is a .csv, .json or .npz file, not {source.name!r}")


def _from_mapping(source: Path, data: Any) -> LengthHistogram:
    if not isinstance(data, dict) or not set(data) >= KEYS:
        raise DataError(f"{source} is no histogram: it needs the keys 'lengths' and 'counts'")
    HISTOGRAM.check(data, source)
    return _build(source, data["lengths"], data["counts"])


def _build(source: Path, lengths: Any, counts: Any) -> LengthHistogram:
    try:
        return LengthHistogram.from_counts(lengths, counts)
    except DataError as error:
        raise type(error)(f"{source}: {error}") from None


def _csv_pairs(source: Path) -> Iterable[tuple[int, int]]:
    delimiter = "\t" if ".tsv" in source.suffixes else ","
    with open_bytes(str(source)) as (file, _):
        rows: Any = csv.reader(codecs.getreader("utf-8-sig")(file), delimiter=delimiter)
        if next(rows, None) != CSV_HEADER:
            raise DataError(f"{source} is no histogram: its first line must be length,count")
        for cells in rows:
            place = f"{source}, line {rows.line_num:,}"
            try:
                length, count = (int(cell) for cell in cells)
            except ValueError:
                raise BadLengthError(
                    f"{place}: a length and a count are expected, both whole numbers, got "
                    f"{','.join(cells)!r}"
                ) from None
            if length < 1 or count < 0:
                raise BadLengthError(
                    f"{place}: a length is at least 1 and a count at least 0, got "
                    f"{length:,} and {count:,}"
                )
            yield length, count


def is_histogram(names: Iterable[str]) -> bool:
    """Whether arrays of these names are a saved histogram, with a format name or without."""
    return KEYS <= set(names) <= KEYS | HISTOGRAM.stamp().keys()


def histogram_part(path: str) -> Part:
    """A saved histogram as a share of a source: one length a sample, in rising order."""
    if is_url(path):
        raise DataError(f"{path}: a histogram is read from local disks; download it first")
    size = Path(path).stat().st_size

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        yield Piece(expand(load_histogram(path), path))
        report(size)

    return Part(path, size, "bytes", read, is_histogram=True)


def expand(histogram: LengthHistogram, where: str) -> Int64Array:
    """One length a sample in rising order; int64, shape (num_samples,).

    Raises:
        DataError: there are too many samples to hold as an array.
    """
    if histogram.num_samples > LARGEST_EXPANSION:
        raise DataError(
            f"{where}: {histogram.num_samples:,} samples are too many to hold one by one "
            f"(at most {LARGEST_EXPANSION:,}); work with the LengthHistogram itself"
        )
    return histogram.to_lengths()
