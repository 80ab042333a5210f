"""Rows of files and Hugging Face data sets, one after the other, from any place on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.prepare.conversations import SourceRow
from lengthwise.errors import DataError, MissingDependencyError
from lengthwise.lengths.arrow import require_pyarrow
from lengthwise.lengths.compressed import COMPRESSIONS, open_bytes
from lengthwise.lengths.formats import HF_MARKERS, expand, format_name
from lengthwise.lengths.jsonl import parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lengthwise.dflash.prepare.settings import RowSettings

BATCH_ROWS = 256
"""Rows of a Parquet file or data set decoded at once."""
READ = ("parquet", "jsonl", "text")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_AROUND = b"\xef\xbb\xbf \t\r\n"

Found = tuple[str, "dict[str, Any] | None", str]
"""Unit of counting, the row's fields or None, and why there are none."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two rows of a source.

    Attributes:
        file: which file, from 0.
        offset: rows of that file before the place.
        index: rows of the whole source before the place.
    """

    file: int = 0
    offset: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows come from.

    Attributes:
        names: files, or the one data set, as the user named them.
        identity: what must be the same on resume: names with sizes, or a data set's fingerprint.
        num_rows: rows in all; None where counting them would mean decompressing everything.
        dataset: the opened Hugging Face data set, if it is one.
    """

    names: tuple[str, ...]
    identity: tuple[str, ...]
    num_rows: int | None
    dataset: Any = field(default=None, repr=False)

    def rows(self, start: Position) -> Iterator[tuple[SourceRow, Position]]:
        """Each row from ``start`` on, with the place after it; only a few are in memory."""
        index, offset = start.index, start.offset
        for number in range(start.file, len(self.names)):
            for unit, record, fault in self._read(number, offset):
                row = offset + (unit == "line")
                offset, index = offset + 1, index + 1
                found = SourceRow(self.names[number], row, unit, index - 1, record, fault)
                yield found, Position(number, offset, index)
            offset = 0

    def _read(self, number: int, start: int) -> Iterator[Found]:
        if self.dataset is not None:
            return _dataset_rows(self.dataset, start)
        name = self.names[number]
        kind = format_name(name)
        if kind == "parquet":
            return _parquet_rows(name, start)
        if kind == "text":
            return _text_rows(name, start)
        return _document_rows(name, start) if _is_document(name) else _json_rows(name, start)


def open_source(sources: Sequence[str], settings: RowSettings) -> Source:
    """The rows of files, globs and directories, or of one Hugging Face data set.

    Args:
        sources: paths, globs and directories of JSONL, JSON, Parquet or text (.gz and .zst where
            it is text); or one directory that datasets' ``save_to_disk`` wrote; or the name of
            one data set on the hub.
        settings: split and subset of a data set.

    Raises:
        DataError: nothing is there, or files of a kind that holds no conversations.
    """
    if len(sources) == 1 and (_is_saved(sources[0]) or _is_hub_name(sources[0])):
        return _open_dataset(sources[0], settings)
    files = expand(list(sources))
    for file in files:
        if format_name(file) not in READ or Path(file).is_dir():
            raise DataError(
                f"{file}: no conversations are read from files of this kind; these are: .jsonl, "
                f".ndjson, .json, .txt (also as .gz and .zst), .parquet, and one saved Hugging "
                f"Face data set"
            )
    identity = tuple(f"{file} ({Path(file).stat().st_size} bytes)" for file in files)
    counts = [_num_rows(file) for file in files]
    total = None if None in counts else sum(count for count in counts if count is not None)
    return Source(tuple(files), identity, total)


def _num_rows(file: str) -> int | None:
    if format_name(file) == "parquet":
        return int(_parquet(file).metadata.num_rows)
    if file.endswith(COMPRESSIONS) or _is_document(file):
        return None
    count, last = 0, b"\n"
    with Path(file).open("rb") as stored:
        while chunk := stored.read(1 << 20):
            count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def _parquet(file: str) -> Any:
    require_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise DataError(f"{file} is no Parquet file, or a damaged one: {error}") from None


def _parquet_rows(name: str, start: int) -> Iterator[Found]:
    with _parquet(name) as file:
        groups, skipped = list(range(file.metadata.num_row_groups)), 0
        while groups and skipped + (size := file.metadata.row_group(groups[0]).num_rows) <= start:
            skipped += size
            groups.pop(0)
        rows = (
            row
            for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups)
            for row in batch.to_pylist()
        )
        for row in islice(rows, start - skipped, None):
            yield "row", row, ""


def _json_rows(name: str, start: int) -> Iterator[Found]:
    with open_bytes(name) as (file, _):
        for line in islice(file, start, None):
            record, fault = parse_record(line)
            yield "line", record, fault


def _is_document(name: str) -> bool:
    """Whether a .json file is one list of objects rather than an object a line."""
    if ".json" not in Path(name).suffixes:
        return False
    with open_bytes(name) as (file, _):
        return file.read(64).lstrip(_AROUND)[:1] == b"["


def _document_rows(name: str, start: int) -> Iterator[Found]:
    """A JSON list cannot be read piecewise with the standard library: it is read as a whole."""
    with open_bytes(name) as (file, _):
        try:
            rows = json.loads(file.read().decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name} is not valid JSON: {error}") from None
    for row in rows[start:]:
        fine = isinstance(row, dict)
        yield "row", row if fine else None, "" if fine else f"not an object but {row!r:.60}"


def _text_rows(name: str, start: int) -> Iterator[Found]:
    with open_bytes(name) as (file, _):
        for line in islice(file, start, None):
            try:
                text = line.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError as error:
                yield "line", None, f"not UTF-8: {error.reason}"
                continue
            yield "line", {"text": text} if text.strip() else None, "blank line"


def _is_saved(source: str) -> bool:
    return any((Path(source) / marker).is_file() for marker in HF_MARKERS)


def _is_hub_name(source: str) -> bool:
    local = Path(source).exists() or format_name(source) is not None
    return not local and _HUB_NAME.fullmatch(source) is not None


def _open_dataset(source: str, settings: RowSettings) -> Source:
    try:
        import datasets
    except ImportError:
        raise MissingDependencyError(
            f"{source} is a Hugging Face data set, which needs the datasets package: "
            f"pip install 'lengthwise[hf]'"
        ) from None
    if _is_saved(source):
        found = datasets.load_from_disk(source)
        if isinstance(found, dict):
            if settings.split not in found:
                raise DataError(
                    f"{source} has no split {settings.split!r}; pass --split with one of: "
                    f"{', '.join(found)}"
                )
            found = found[settings.split]
    else:
        try:
            found = datasets.load_dataset(source, settings.subset, split=settings.split)
        except Exception as error:
            raise DataError(
                f"there is no file or directory {source!r}, and as a data set of the hub it "
                f"cannot be loaded (split {settings.split!r}): {error}"
            ) from error
    identity = f"{source} [{settings.split}] {found._fingerprint}"  # noqa: SLF001 - no public name
    return Source((source,), (identity,), len(found), found)


def _dataset_rows(dataset: Any, start: int) -> Iterator[Found]:
    plain = dataset.with_format(None)
    for first in range(start, len(plain), BATCH_ROWS):
        columns = plain[first : first + BATCH_ROWS]
        for values in zip(*columns.values(), strict=True):
            yield "row", dict(zip(columns, values, strict=True)), ""
