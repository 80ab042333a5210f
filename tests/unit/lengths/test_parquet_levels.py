"""Large list columns are counted by their levels; pyarrow's own reading is the oracle."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import BadLengthError, DataError
from lengthwise.lengths import parquet, parquet_pages
from lengthwise.lengths.api import read_lengths, scan_lengths
from lengthwise.lengths.thrift import read_struct
from support.counting_file import CountingFile

pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")

CODECS = ["none", "snappy", "gzip", "zstd", "brotli"]


@pytest.fixture
def by_levels(monkeypatch):
    """Small files take the large files' way; ``answers`` says which row groups it could read."""
    answers = []
    plain = parquet_pages.chunk_lengths

    def noted(*arguments):
        lengths = plain(*arguments)
        answers.append(lengths is not None)
        return lengths

    monkeypatch.setattr(parquet, "LEVELS_FROM_BYTES", 0)
    monkeypatch.setattr(parquet, "chunk_lengths", noted)
    return answers


def _rows(seed, num_rows, longest, nulls):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, num_rows)
    rows = [rng.integers(0, 50_000, length).tolist() for length in lengths]
    if nulls:
        for row in rng.choice(num_rows, num_rows // 5, replace=False).tolist():
            rows[row] = None
        for row in rows[::3]:
            if row:
                row[0] = None
    return rows


def _expected(rows):
    kept = [(place, len(row)) for place, row in enumerate(rows) if row]
    return [place for place, _ in kept], [length for _, length in kept]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("nulls", [True, False])
def test_every_codec_and_page_version_agrees_with_the_lists(
    codec, version, dictionary, nulls, by_levels, tmp_path
):
    """Small pages, so that levels start and end in all kinds of places."""
    rows = _rows(3, 700, 90, nulls)
    pq.write_table(
        pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32())), "other": ["x"] * 700}),
        tmp_path / "a.parquet",
        compression=codec,
        data_page_version=version,
        use_dictionary=dictionary,
        data_page_size=3_000,
        row_group_size=300,
    )
    scan = scan_lengths(tmp_path / "a.parquet", on_bad="skip")
    row_index, lengths = _expected(rows)
    assert by_levels == [True, True, True]
    assert scan.lengths.tolist() == lengths
    assert scan.row_index.tolist() == row_index
    reasons = {bad.row: bad.reason[:4] for bad in scan.first_bad}
    assert reasons == {row: "null" if rows[row] is None else "0 to" for row in reasons}


VALUE_TYPES = [pa.int8(), pa.int64(), pa.float32(), pa.string(), pa.bool_()]


@given(
    rows=st.lists(st.one_of(st.none(), st.lists(st.none() | st.just(1), max_size=40)), max_size=60),
    value_type=st.sampled_from(VALUE_TYPES),
    large=st.booleans(),
    settings_=st.fixed_dictionaries(
        {
            "compression": st.sampled_from(CODECS),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "data_page_size": st.integers(1, 400),
            "write_batch_size": st.integers(1, 64),
            "row_group_size": st.integers(1, 70),
            "use_compliant_nested_type": st.booleans(),
        }
    ),
)
@settings(max_examples=60)
def test_any_list_column_agrees_with_pyarrow(rows, value_type, large, settings_):
    rows = [[1], *rows]
    make = pa.large_list if large else pa.list_
    table = pa.table({"tokens": pa.array(rows, pa.list_(pa.int8())).cast(make(value_type))})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **settings_)
    metadata = pq.read_metadata(buffer)
    levels = parquet_pages.list_levels(table.schema.field(0), metadata.schema, [0])
    file = pa.BufferReader(buffer.getvalue())
    found = [
        parquet_pages.chunk_lengths(file, metadata.row_group(group), 0, levels)
        for group in range(metadata.num_row_groups)
    ]
    oracle = pa.compute.list_value_length(table["tokens"]).fill_null(-1)
    assert np.concatenate(found).tolist() == oracle.to_pylist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.field("ids", pa.list_(pa.int32()), nullable=False),
        pa.field("ids", pa.list_(pa.field("item", pa.int32(), nullable=False))),
        pa.field("ids", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
    ],
)
def test_columns_and_values_that_cannot_be_null_have_fewer_levels(kind, by_levels, tmp_path):
    rows = [row or [1] for row in _rows(5, 200, 30, nulls=False)]
    schema = pa.schema([kind])
    pq.write_table(pa.table({"ids": rows}, schema=schema), tmp_path / "a.parquet")
    assert read_lengths(tmp_path / "a.parquet").tolist() == [len(row) for row in rows]
    assert by_levels == [True]


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ({"ids": pa.array([[[1], [2, 3]], [[4]]])}, {}),
        ({"ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))}, {"compression": "lz4"}),
        ({"ids": [[1, 2], [3]]}, {"compression": "lz4"}),
    ],
)
def test_what_is_not_known_is_left_to_pyarrow(table, options, by_levels, tmp_path):
    table = pa.table(table)
    pq.write_table(table, tmp_path / "a.parquet", **options)
    assert read_lengths(tmp_path / "a.parquet").tolist() == [
        len(row) for row in table["ids"].to_pylist()
    ]
    assert True not in by_levels


def test_only_a_part_of_the_column_itself_is_read(by_levels, monkeypatch, tmp_path):
    """The values lie behind the levels in each page, and 1 MiB pages are mostly values."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(500, 3_000, 900)
    values = pa.array(rng.integers(0, 2**31, lengths.sum()), pa.int32())
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, values)
    for codec in ("none", "snappy"):
        path = str(tmp_path / f"{codec}.parquet")
        pq.write_table(
            pa.table({"input_ids": lists}), path, compression=codec, use_dictionary=False
        )
        ranges = []
        monkeypatch.setattr(
            parquet,
            "open_file",
            lambda name, ranges=ranges: pa.PythonFile(CountingFile(name, ranges), mode="r"),
        )
        assert read_lengths(path).tolist() == lengths.tolist()
        column = pq.read_metadata(path).row_group(0).column(0)
        assert by_levels.pop()
        assert sum(hi - lo for lo, hi in ranges) < 0.25 * column.total_compressed_size


def test_a_row_may_be_spread_over_many_pages(by_levels, tmp_path):
    """One row of 40,000 tokens beside short ones, in pages of a few hundred bytes."""
    rows = [[1], list(range(40_000)), [2, 3], list(range(9_000)), [4]]
    for version in ("1.0", "2.0"):
        path = tmp_path / f"v{version}.parquet"
        pq.write_table(
            pa.table({"input_ids": rows}),
            path,
            data_page_size=300,
            write_batch_size=50,
            use_dictionary=False,
            data_page_version=version,
        )
        assert read_lengths(path).tolist() == [len(row) for row in rows]
    assert by_levels == [True, True]


def test_bad_rows_have_their_place_in_the_file(by_levels, tmp_path):
    rows = [[1, 2]] * 50
    rows[33] = None
    pq.write_table(pa.table({"input_ids": rows}), tmp_path / "a.parquet", row_group_size=8)
    with pytest.raises(BadLengthError, match=r"a\.parquet, row 33: null"):
        read_lengths(tmp_path / "a.parquet", threads=1)
    assert all(by_levels)


def test_broken_pages_are_reported_by_pyarrow_with_the_file(by_levels, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"input_ids": _rows(1, 300, 40, nulls=False)}), path)
    column = pq.read_metadata(path).row_group(0).column(0)
    first = column.dictionary_page_offset
    data = bytearray(path.read_bytes())
    data[first : first + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet, after row 0"):
        read_lengths(path, on_bad="skip")
    assert by_levels == [False]


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 60))
def test_a_damaged_file_never_crashes_the_counting(noise, where, size):
    """It may be caught here or by pyarrow, or hit values, which are not looked at."""
    buffer = io.BytesIO()
    table = pa.table({"ids": _rows(2, 60, 30, nulls=True)})
    pq.write_table(table, buffer, data_page_size=200, use_dictionary=False)
    metadata = pq.read_metadata(buffer)
    column = metadata.row_group(0).column(0)
    data = bytearray(buffer.getvalue())
    at = column.data_page_offset + where % column.total_compressed_size
    data[at : at + size] = noise[:size].ljust(size, b"\0")
    levels = parquet_pages.list_levels(table.schema.field(0), metadata.schema, [0])
    file = pa.BufferReader(bytes(data))
    lengths = parquet_pages.chunk_lengths(file, metadata.row_group(0), 0, levels)
    assert lengths is None or lengths.shape == (60,)


def test_thrift_skips_what_is_not_needed():
    """1: i32 -3; 2: true; 4: text; 5: list of 2 i32; 6: struct of (1: i64 300); 40: i16 7."""
    data = bytes(
        [0x15, 5, 0x11, 0x28, 3, *b"abc", 0x19, 0x25, 2, 4, 0x1C, 0x16, 0xD8, 4, 0, 4, 80, 14, 0]
    )
    fields, size = read_struct(data + b"rest")
    assert size == len(data)
    assert fields == {1: -3, 2: True, 6: {1: 300}, 40: 7}
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            read_struct(data[:cut])
