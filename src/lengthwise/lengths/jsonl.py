"""JSON Lines: one JSON object a line (.jsonl, .ndjson, .json; .gz and .zst too)."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError
from lengthwise.lengths.compressed import open_bytes
from lengthwise.lengths.histogram_file import histogram_part, is_histogram
from lengthwise.lengths.rows import Part, Piece, Place
from lengthwise.lengths.storage import identity_of
from lengthwise.lengths.values import ValueLengths, describe, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.formats import ReadOptions

SAMPLE_RECORDS = 100
"""Records that are looked at to learn the columns."""
SAMPLE_LINES = 10_000
"""Lines in which these records are looked for."""
ROWS_PER_PIECE = 1 << 16

_AROUND = "\ufeff \t\r\n"
"""Around a value: white space, and the byte order mark that some programs put first."""
_decode = json.JSONDecoder().raw_decode


def fields(path: str) -> list[Field] | None:
    """The keys of the first records, with the kind of their values; None for a histogram."""
    if ".json" in Path(path).suffixes and _is_histogram(path):
        return None
    records: list[dict[str, Any]] = []
    with open_bytes(path) as (file, _):
        for line in islice(file, SAMPLE_LINES):
            record, _fault = parse_record(line)
            if record is not None:
                records.append(record)
            if len(records) == SAMPLE_RECORDS:
                break
    return fields_of(records)


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:
    """The file as one part: lines cannot be found without reading them in order."""
    if field is None:
        return [histogram_part(path)]

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(path, "line", stop_at_bad=options.stop_at_bad)
        seen = 0
        with open_bytes(path) as (file, tell):
            for first in _counted(ROWS_PER_PIECE):
                lengths = ValueLengths(field.kind, place, options.count_tokens)
                for row, line in enumerate(islice(file, ROWS_PER_PIECE), first):
                    _add_line(lengths, line, row, field.name)
                if not len(lengths):
                    return
                yield lengths.piece()
                report(tell() - seen)
                seen = tell()

    return [Part(path, identity_of(path).size, "bytes", read)]


def _counted(step: int) -> Iterator[int]:
    first = 1
    while True:
        yield first
        first += step


def _add_line(lengths: ValueLengths, line: bytes, row: int, name: str) -> None:
    record, fault = parse_record(line)
    if record is None:
        lengths.add_bad(row, fault)
    elif name not in record:
        lengths.add_bad(row, f"missing key {name!r}")
    else:
        lengths.add(record[name], row)


def parse_record(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object on a line, or None and what is wrong with the line."""
    try:
        text = line.decode().strip(_AROUND)
        record, end = _decode(text)
        if end != len(text):
            return None, f"malformed JSON: more text after the value, from character {end + 1:,} on"
    except (ValueError, RecursionError) as error:
        return None, f"malformed JSON: {error}" if line.strip() else "blank line"
    if not isinstance(record, dict):
        return None, f"not a JSON object but {describe(record)}"
    return record, ""


def _is_histogram(path: str) -> bool:
    """Whether a .json file is a saved histogram; any other single document is refused."""
    with open_bytes(path) as (file, _):
        first = file.readline()
    record, _fault = parse_record(first)
    if record is not None:
        return is_histogram(record)
    if first.strip() in (b"[", b"{") or first.lstrip().startswith((b"[{", b"[[")):
        raise DataError(
            f"{path} is one JSON document, not JSON Lines (one object a line); convert it, for "
            f"instance with: jq -c '.[]' {Path(path).name} > {Path(path).stem}.jsonl"
        )
    return False
