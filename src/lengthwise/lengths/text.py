"""Plain text: one sample a line, its tokens counted by a tokenizer."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from lengthwise.errors import ColumnError
from lengthwise.lengths.columns import TEXT
from lengthwise.lengths.compressed import open_bytes
from lengthwise.lengths.rows import Part, Piece, Place
from lengthwise.lengths.storage import identity_of
from lengthwise.lengths.values import TEXTS_PER_CALL, ValueLengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.formats import ReadOptions


def fields(path: str) -> None:
    """Text has no columns."""


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:  # noqa: ARG001
    """The file as one part."""
    if options.count_tokens is None:
        raise ColumnError(
            f"{path} is text, and characters are not tokens; pass a tokenizer "
            f"(tokenizer=... or --tokenizer tokenizer.json)"
        )

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(path, "line", stop_at_bad=options.stop_at_bad)
        row, seen = 1, 0
        with open_bytes(path) as (file, tell):
            while lines := list(islice(file, TEXTS_PER_CALL)):
                lengths = ValueLengths(TEXT, place, options.count_tokens)
                for number, line in enumerate(lines, row):
                    _add_line(lengths, line, number)
                yield lengths.piece()
                row += len(lines)
                report(tell() - seen)
                seen = tell()

    return [Part(path, identity_of(path).size, "bytes", read)]


def _add_line(lengths: ValueLengths, line: bytes, number: int) -> None:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        lengths.add_bad(number, f"not UTF-8: {error.reason}")
        return
    if text.strip():
        lengths.add(text, number)
    else:
        lengths.add_bad(number, "blank line")
