"""The list lengths of a Parquet column from its levels, page by page, without its values.

pyarrow can only decode a list column whole: every value, to count them. Here each page's header is
parsed, the levels at its beginning are decompressed (not the values behind them), and counted by
a kernel. Whatever is not known here is left to pyarrow, which decodes the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.lengths.thrift import read_struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Bytes = npt.NDArray[np.uint8]

_HEADER_BYTES = 1 << 14
"""Read at once for a page header and the levels behind it."""
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_RLE = 3
_STREAMED = {"ZSTD": "zstd", "GZIP": "gzip", "BROTLI": "brotli"}
NULL_LIST = -1
"""Length of a null row; the kernel's constant, known without importing it."""
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", *_STREAMED})


class _UnknownLayoutError(Exception):
    """The file is laid out in a way that is left to pyarrow."""


@dataclass(frozen=True, slots=True)
class ListLevels:
    """What the levels of a list column mean.

    Attributes:
        present: smallest definition level of an element that is there.
        highest: largest definition level.
    """

    present: int
    highest: int

    @property
    def bits(self) -> int:
        """Bits of one stored definition level."""
        return self.highest.bit_length()


def list_levels(field: Any, schema: Any, leaves: list[int]) -> ListLevels | None:
    """The levels of a top-level list of plain values; None if the column is anything else.

    Args:
        field: Arrow field of the column.
        schema: the Parquet schema.
        leaves: places of the stored columns it is made of.
    """
    if len(leaves) != 1 or not hasattr(field.type, "value_field"):
        return None
    leaf = schema.column(leaves[0])
    present = 1 + int(field.nullable)
    expected = present + int(field.type.value_field.nullable)
    if leaf.max_repetition_level != 1 or leaf.max_definition_level != expected:
        return None
    return ListLevels(present, leaf.max_definition_level)


def chunk_lengths(file: Any, row_group: Any, leaf: int, levels: ListLevels) -> Int64Array | None:
    """The length of each list of a row group, NULL_LIST where it is null.

    Args:
        file: pyarrow file, open for reading.
        row_group: metadata of the row group.
        leaf: place of the column's leaf in it.
        levels: what its levels mean.

    Returns:
        int64, shape (num_rows,); None if a codec, encoding or page is left to pyarrow.
    """
    chunk = row_group.column(leaf)
    if chunk.compression not in _CODECS:
        return None
    try:
        return _count_pages(file, chunk, row_group.num_rows, levels)
    except _UnknownLayoutError:
        return None


def _count_pages(file: Any, chunk: Any, num_rows: int, levels: ListLevels) -> Int64Array:
    from lengthwise.core.kernels.levels import BROKEN, count_levels

    lengths = np.zeros(num_rows, np.int64)
    row, left = -1, chunk.num_values
    for page in _pages(file, chunk):
        data, ends = page.levels()
        if page.num_values > left:
            raise _UnknownLayoutError
        row = count_levels(data, ends, levels.bits, page.num_values, levels.present, lengths, row)
        if row == BROKEN:
            raise _UnknownLayoutError
        left -= page.num_values
        if left == 0:
            break
    if left or row + 1 != lengths.size:
        raise _UnknownLayoutError
    return lengths


@dataclass(frozen=True, slots=True)
class _Page:
    """A data page: where its bytes are and how they are stored.

    Attributes:
        file: the open file.
        codec: of its body.
        offset: where the body starts.
        stored: bytes of the body in the file.
        plain: bytes of the body when decompressed.
        num_values: levels of each kind.
        version_2: bytes of the repetition and definition levels of a version 2 page, which come
            first and are never compressed; None for version 1.
    """

    file: Any
    codec: str
    offset: int
    stored: int
    plain: int
    num_values: int
    version_2: tuple[int, int] | None

    def levels(self) -> tuple[Bytes, Int64Array]:
        """The bytes that hold the levels, and where each kind starts and ends in them."""
        if self.version_2 is not None:
            repetition, definition = self.version_2
            data = self._stored(repetition + definition)
            ends = np.array([0, repetition, repetition, repetition + definition])
        else:
            data, ends = self._version_1()
        if int(ends[-1]) > data.size:
            raise _UnknownLayoutError
        return data, ends

    def _version_1(self) -> tuple[Bytes, Int64Array]:
        """Each kind follows its size in four bytes; how far to decompress shows on the way."""
        wanted = 8 + self.num_values // 2
        while True:
            data = self._plain(min(wanted, self.plain))
            first = 4 + int.from_bytes(data[:4].tobytes(), "little")
            last = first + 4
            if last <= data.size:
                last += int.from_bytes(data[first:last].tobytes(), "little")
                if last <= data.size:
                    return data, np.array([4, first, first + 4, last])
            if last > self.plain:
                raise _UnknownLayoutError
            wanted = 2 * last

    def _stored(self, size: int) -> Bytes:
        return np.frombuffer(self.file.read_at(min(size, self.stored), self.offset), np.uint8)

    def _plain(self, size: int) -> Bytes:
        """The first ``size`` bytes of the decompressed body."""
        if self.codec == "UNCOMPRESSED":
            return self._stored(size)
        if self.codec in _STREAMED:
            import pyarrow as pa

            body = pa.BufferReader(self.file.read_at(self.stored, self.offset))
            stream = pa.CompressedInputStream(body, _STREAMED[self.codec])
            data = np.frombuffer(stream.read(size), np.uint8)
        else:
            data = self._snappy(size)
        if data.size != size:
            raise _UnknownLayoutError
        return data

    def _snappy(self, size: int) -> Bytes:
        from lengthwise.core.kernels.levels import snappy_prefix

        out = np.empty(size, np.uint8)
        for stored in (size + size // 6 + 64, self.stored):
            if snappy_prefix(self._stored(stored), out) == size:
                out.setflags(write=False)  # like every other source: one compiled kernel for all
                return out
        raise _UnknownLayoutError


def _pages(file: Any, chunk: Any) -> Iterator[_Page]:
    """The data pages of a column chunk."""
    offset = chunk.data_page_offset
    if chunk.dictionary_page_offset:
        offset = min(offset, chunk.dictionary_page_offset)
    end = offset + chunk.total_compressed_size
    while offset < end:
        header, size = _header(file, offset, end)
        kind, plain, stored = header.get(1), header.get(2), header.get(3)
        if plain is None or stored is None or offset + size + stored > end:
            raise _UnknownLayoutError
        body = offset + size
        if kind == _DATA_PAGE:
            about = header.get(5, {})
            if about.get(3) != _RLE or about.get(4) != _RLE:
                raise _UnknownLayoutError
            yield _Page(file, chunk.compression, body, stored, plain, about[1], None)
        elif kind == _DATA_PAGE_V2:
            about = header.get(8, {})
            if not {1, 5, 6} <= set(about):
                raise _UnknownLayoutError
            sizes = (about[6], about[5])
            yield _Page(file, chunk.compression, body, stored, plain, about[1], sizes)
        elif kind != _DICTIONARY_PAGE:
            raise _UnknownLayoutError
        offset = body + stored


def _header(file: Any, offset: int, end: int) -> tuple[dict[int, Any], int]:
    """The page header at ``offset`` and its size."""
    size = _HEADER_BYTES
    while True:
        data = file.read_at(min(size, end - offset), offset)
        try:
            return read_struct(bytes(data))
        except IndexError:
            if size >= end - offset:
                raise _UnknownLayoutError from None
            size *= 8
