"""Lengths of lists from their stored structure: Parquet's repetition and definition levels.

A list column keeps, beside its values, two small numbers for each: the repetition level (0 where
a new row starts, 1 inside a list) and the definition level (whether the row is null, the list
empty, or an element there). Counting them gives the length of every list without any value.

Formats: Parquet's hybrid of run-length and bit-packed groups ("Data Pages" and "RLE" in the
Parquet format specification), and the Snappy format description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Bytes = npt.NDArray[np.uint8]

NULL_LIST = -1
"""What ``count_levels`` writes for a row that is null."""
BROKEN = -2
"""Returned where the bytes do not follow the format."""


@kernel
def next_run(data: Bytes, end: int, bits: int, run: Int64Array) -> bool:
    """Read the header of the next run of levels.

    Args:
        data: the bytes.
        end: where the levels end in ``data``.
        bits: bits of one level, 1 to 8.
        run: state, shape (5,): levels left, whether bit-packed, the value of a plain run, next
            byte, and the next bit counted from the first bit of ``data``; updated.

    Returns:
        False if the bytes are used up or broken.
    """
    header, shift, at = np.int64(0), 0, run[3]
    while True:
        if at >= end or shift > 56:
            return False
        byte = np.int64(data[at])
        at += 1
        header |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    count = header >> 1
    if count == 0:
        return False
    if header & 1:
        run[0], run[1], run[4] = count * 8, 1, at * 8
        run[3] = at + count * bits
        return True
    if at >= end:
        return False
    run[0], run[1], run[2], run[3] = count, 0, np.int64(data[at]), at + 1
    return True


@kernel
def packed_level(data: Bytes, end: int, bits: int, bit: int) -> np.int64:
    """The level of ``bits`` bits that starts at bit number ``bit``; bytes from ``end`` on are 0."""
    level = np.int64(0)
    for place in range(bits):
        byte = (bit + place) >> 3
        if byte < end:
            level |= ((np.int64(data[byte]) >> ((bit + place) & 7)) & 1) << place
    return level


@kernel
def count_levels(
    data: Bytes, ends: Int64Array, bits: int, num_levels: int, present: int, lengths: Int64Array,
    row: int,
) -> int:  # fmt: skip
    """Add the elements of one page to the lengths of its rows.

    Args:
        data: the page's repetition levels (1 bit each), then its definition levels.
        ends: where the repetition levels start and end and where the definition levels start and
            end in ``data``, shape (4,).
        bits: bits of a definition level.
        num_levels: levels of each kind in the page.
        present: the smallest definition level of an element that is there, null or not.
        lengths: of the rows of the column chunk, 0 before their first element; updated. A null
            row gets NULL_LIST where ``present`` is 2, that is where rows can be null.
        row: the row that the page continues, -1 at the start of the chunk.

    Returns:
        The last row of the page, or BROKEN.
    """
    reps, defs = np.zeros(5, np.int64), np.zeros(5, np.int64)
    reps[3], defs[3] = ends[0], ends[2]
    done = np.int64(0)
    while done < num_levels:
        if reps[0] == 0 and not next_run(data, ends[1], 1, reps):
            return BROKEN
        if defs[0] == 0 and not next_run(data, ends[3], bits, defs):
            return BROKEN
        step = min(reps[0], defs[0], np.int64(num_levels - done))
        if reps[1] == 0 and defs[1] == 0 and reps[2] == 1:
            if row < 0:
                return BROKEN
            if defs[2] >= present:
                lengths[row] += step
        else:
            for i in range(step):
                rep, level = reps[2], defs[2]
                if reps[1] == 1:
                    rep = packed_level(data, ends[1], 1, reps[4] + i)
                if defs[1] == 1:
                    level = packed_level(data, ends[3], bits, defs[4] + i * bits)
                if rep == 0:
                    row += 1
                if row < 0 or row >= lengths.size or rep > 1:
                    return BROKEN
                if level >= present:
                    lengths[row] += 1
                elif level == 0 and present == 2:
                    lengths[row] = NULL_LIST
        reps[4] += step
        defs[4] += step * bits
        reps[0] -= step
        defs[0] -= step
        done += step
    return int(row)


@kernel
def snappy_prefix(data: Bytes, out: Bytes) -> int:
    """Decompress the first ``out.size`` bytes of a Snappy block.

    Args:
        data: the block, or as much of its beginning as is at hand.
        out: filled from the start.

    Returns:
        Bytes written: fewer than ``out.size`` where ``data`` ends early; BROKEN if it is invalid.
    """
    at, done = np.int64(0), np.int64(0)
    while at < data.size and data[at] >= 128:  # the block's own length comes first
        at += 1
    at += 1
    while done < out.size and at < data.size:
        tag = np.int64(data[at])
        at += 1
        kind = tag & 3
        if kind == 0:
            size = (tag >> 2) + 1
            if size > 60:
                extra = size - 60
                if at + extra > data.size:
                    return int(done)
                size = np.int64(1)
                for place in range(extra):
                    size += np.int64(data[at + place]) << (8 * place)
                at += extra
            size = min(size, np.int64(out.size - done), np.int64(data.size - at))
            for place in range(size):  # a slice would take seconds to compile
                out[done + place] = data[at + place]
            at += size
            done += size
            continue
        width = np.int64(4) if kind == 3 else kind
        if at + width > data.size:
            return int(done)
        offset = np.int64(0)
        for place in range(width):
            offset |= np.int64(data[at + place]) << (8 * place)
        at += width
        size = (tag >> 2) + 1
        if kind == 1:
            size = ((tag >> 2) & 7) + 4
            offset |= (tag >> 5) << 8
        if offset == 0 or offset > done:
            return BROKEN
        for _ in range(min(size, np.int64(out.size - done))):
            out[done] = out[done - offset]
            done += 1
    return int(done)
