"""Counting lists by their levels: against the lists themselves, and pyarrow's own Snappy."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.kernels.levels import BROKEN, NULL_LIST, count_levels, snappy_prefix
from support.parquet_levels import encode_levels, list_levels

VALUES = st.one_of(st.none(), st.just(1))
ROWS = st.lists(
    st.one_of(st.none(), st.lists(VALUES, max_size=12), st.integers(0, 300).map(lambda n: [1] * n)),
    max_size=30,
)
CUTS = st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=5)


def _page(repetition, definition, highest, cuts):
    first = encode_levels(repetition, 1, cuts[0])
    second = encode_levels(definition, highest.bit_length(), cuts[1])
    data = np.frombuffer(first + second, np.uint8)
    return data, np.array([0, len(first), len(first), len(first) + len(second)])


@given(
    rows=ROWS,
    nullable=st.booleans(),
    nullable_values=st.booleans(),
    cuts=st.tuples(CUTS, CUTS),
    pages=st.lists(st.integers(1, 200), min_size=1, max_size=6),
)
def test_levels_are_counted_as_the_lists_they_stand_for(
    rows, nullable, nullable_values, cuts, pages
):
    """Any mix of runs, and pages that end anywhere, also in the middle of a row."""
    if not nullable:
        rows = [row or [] for row in rows]
    if not nullable_values:
        rows = [None if row is None else [1 for _ in row] for row in rows]
    present = 1 + nullable
    highest = present + nullable_values
    repetition, definition = list_levels(rows, present, highest)
    lengths = np.zeros(len(rows), np.int64)
    row, at, turn = -1, 0, 0
    while at < len(repetition):
        size = pages[turn % len(pages)]
        turn += 1
        levels = repetition[at : at + size], definition[at : at + size]
        data, ends = _page(*levels, highest, cuts)
        number = len(levels[0])
        row = count_levels(data, ends, highest.bit_length(), number, present, lengths, row)
        at += size
    assert row == len(rows) - 1
    assert lengths.tolist() == [NULL_LIST if row is None else len(row) for row in rows]


@given(st.binary(max_size=40), st.integers(1, 3), st.integers(0, 10_000))
def test_arbitrary_bytes_never_write_outside_the_rows(data, bits, number):
    """The guard rows around the array stay as they were, whatever a broken page says."""
    guarded = np.full(12, 77, np.int64)
    guarded[4:8] = 0
    half = len(data) // 2
    ends = np.array([0, half, half, len(data)])
    row = count_levels(np.frombuffer(data, np.uint8), ends, bits, number, 2, guarded[4:8], -1)
    assert row == BROKEN or -1 <= row < 4
    assert guarded[:4].tolist() == guarded[8:].tolist() == [77] * 4


def test_levels_that_end_early_are_broken():
    repetition, definition = list_levels([[1, 1], [1]], 2, 3)
    data, ends = _page(repetition, definition, 3, ([(1, False)], [(1, False)]))
    lengths = np.zeros(2, np.int64)
    assert count_levels(data, ends, 2, 3, 2, lengths, -1) == 1
    assert count_levels(data, ends, 2, 4, 2, np.zeros(2, np.int64), -1) == BROKEN
    assert count_levels(data, ends, 2, 3, 2, np.zeros(1, np.int64), -1) == BROKEN


@given(
    content=st.one_of(
        st.binary(max_size=400),
        st.lists(st.binary(min_size=1, max_size=9), max_size=60).map(lambda p: b"".join(p * 3)),
        st.integers(0, 70_000).map(lambda n: np.random.default_rng(n).bytes(n) + b"ab" * n),
    ),
    share=st.floats(0, 1),
)
def test_a_snappy_prefix_is_the_beginning_of_what_pyarrow_decompresses(content, share):
    packed = np.frombuffer(pa.Codec("snappy").compress(content), np.uint8)
    size = round(share * len(content))
    out = np.zeros(size + 8, np.uint8)
    assert snappy_prefix(packed, out[:size]) == size
    assert out[:size].tobytes() == content[:size]
    assert out[size:].tolist() == [0] * 8


@given(content=st.binary(min_size=1, max_size=300), cut=st.floats(0, 1))
def test_a_snappy_block_that_is_cut_gives_what_is_there(content, cut):
    content *= 3
    packed = np.frombuffer(pa.Codec("snappy").compress(content), np.uint8)
    out = np.zeros(len(content), np.uint8)
    done = snappy_prefix(packed[: round(cut * packed.size)], out)
    assert 0 <= done <= len(content)
    assert out[:done].tobytes() == content[:done]


@given(st.binary(max_size=60), st.integers(0, 200))
def test_arbitrary_bytes_are_broken_or_short_but_never_overrun(data, size):
    out = np.full(size + 8, 7, np.uint8)
    done = snappy_prefix(np.frombuffer(data, np.uint8), out[:size])
    assert done == BROKEN or 0 <= done <= size
    assert out[size:].tolist() == [7] * 8


@pytest.mark.parametrize("offset", [b"\x00\x00", b"\x09\x00"])
def test_a_copy_from_before_the_start_is_broken(offset):
    """Tag 0xfe: copy 64 bytes from a two-byte offset, after a literal of one byte."""
    data = np.frombuffer(b"\x40\x00a\xfe" + offset, np.uint8)
    assert snappy_prefix(data, np.zeros(64, np.uint8)) == BROKEN
