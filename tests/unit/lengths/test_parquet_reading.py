"""Parquet: which bytes are read, in what pieces, and what broken files say."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lengthwise.errors import BadLengthError, ColumnError, DataError
from lengthwise.lengths import parquet
from lengthwise.lengths.api import read_lengths, scan_lengths
from lengthwise.lengths.formats import ReadOptions
from support.counting_file import CountingFile, touched

# toy data is often sorted or equal; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")

ROWS = 5_000
LENGTHS = np.random.default_rng(7).integers(1, 60, ROWS)


@pytest.fixture
def wide_file(tmp_path):
    """Neighbours on both sides of each column of interest, in several row groups."""
    lists = [list(range(length)) for length in LENGTHS.tolist()]
    table = pa.table(
        {
            "first": [f"{row} " + "x" * 40 for row in range(ROWS)],
            "input_ids": pa.array(lists, pa.list_(pa.int32())),
            "messages": [[{"role": "user", "content": f"c{row}"}] for row in range(ROWS)],
            "seq_len": pa.array(LENGTHS, pa.int64()),
            "last": [f"{row} " + "y" * 40 for row in range(ROWS)],
        }
    )
    pq.write_table(table, tmp_path / "wide.parquet", row_group_size=1_024)
    return str(tmp_path / "wide.parquet")


@pytest.mark.parametrize("column", ["seq_len", "input_ids"])
def test_no_byte_of_another_column_is_touched(wide_file, column, monkeypatch):
    """The byte ranges come from the file's own metadata, the reads from the file object."""
    ranges = []

    def open_counted(path):
        return pa.PythonFile(CountingFile(path, ranges), mode="r")

    monkeypatch.setattr(parquet, "open_file", open_counted)
    assert read_lengths(wide_file, column=column).tolist() == LENGTHS.tolist()

    metadata = pq.read_metadata(wide_file)
    wanted = foreign = 0
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            read = touched(ranges, first, first + chunk.total_compressed_size)
            if chunk.path_in_schema.split(".")[0] == column:
                assert read == chunk.total_compressed_size
                wanted += read
            else:
                foreign += read
    assert metadata.num_row_groups == 5
    assert wanted > 0
    assert foreign == 0


def test_every_byte_of_the_column_is_read_once(wide_file, monkeypatch):
    """Read twice, it would be counted twice; the footer lies behind all columns."""
    ranges = []
    monkeypatch.setattr(
        parquet, "open_file", lambda path: pa.PythonFile(CountingFile(path, ranges), mode="r")
    )
    read_lengths(wide_file, column="seq_len")
    metadata = pq.read_metadata(wide_file)
    columns_end = Path(wide_file).stat().st_size - metadata.serialized_size - 8
    in_columns = [(lo, hi) for lo, hi in ranges if lo < columns_end]
    chunks = [
        metadata.row_group(group).column(index)
        for group in range(metadata.num_row_groups)
        for index in range(metadata.num_columns)
    ]
    size = sum(c.total_compressed_size for c in chunks if c.path_in_schema == "seq_len")
    assert sum(hi - lo for lo, hi in in_columns) == size


def test_a_file_is_decoded_in_bounded_batches(wide_file, monkeypatch):
    """No batch may exceed the bound by more than one row, however large a row group is."""
    monkeypatch.setattr(parquet, "BATCH_BYTES", 4_096)
    metadata = pq.read_metadata(wide_file)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    lists_at = 1
    widest = max(
        group.column(lists_at).total_uncompressed_size / group.num_rows for group in groups
    )
    field = next(field for field in parquet.fields(wide_file) if field.name == "input_ids")
    options = ReadOptions(stop_at_bad=True, count_tokens=None)
    pieces = [
        piece
        for part in parquet.parts(wide_file, field, options)
        for piece in part.read(lambda _: None)
    ]
    assert max(len(piece.lengths) for piece in pieces) * widest <= 2 * 4_096
    assert np.concatenate([piece.lengths for piece in pieces]).tolist() == LENGTHS.tolist()


def test_row_groups_are_shared_out_to_threads(wide_file, monkeypatch):
    monkeypatch.setattr(parquet, "PART_ROWS", 2_000)
    field = next(field for field in parquet.fields(wide_file) if field.name == "seq_len")
    parts = parquet.parts(wide_file, field, ReadOptions(stop_at_bad=True, count_tokens=None))
    assert [part.size for part in parts] == [2_048, 2_048, 904]
    for threads in (1, 3):
        assert read_lengths(wide_file, threads=threads).tolist() == LENGTHS.tolist()


def test_a_bad_row_is_named_by_its_place_in_the_file_whatever_the_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "PART_ROWS", 10)
    values = [5] * 95
    values[71], values[83] = None, -4
    pq.write_table(pa.table({"length": values}), tmp_path / "b.parquet", row_group_size=10)
    with pytest.raises(BadLengthError, match=r"b\.parquet, row 71: null"):
        read_lengths(tmp_path / "b.parquet", threads=4)
    scan = scan_lengths(tmp_path / "b.parquet", on_bad="skip")
    assert [bad.row for bad in scan.first_bad] == [71, 83]
    assert scan.row_index.tolist() == [row for row in range(95) if row not in (71, 83)]


def test_each_file_must_have_the_column(tmp_path):
    pq.write_table(pa.table({"length": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"size": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ColumnError, match=r"b\.parquet: there is no column 'length'.*size \(int64"):
        read_lengths(tmp_path)


def test_files_may_store_the_same_column_in_different_types(tmp_path):
    pq.write_table(pa.table({"length": pa.array([1], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"length": pa.array([70_000], pa.uint32())}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"length": pa.array([], pa.int64())}), tmp_path / "c.parquet")
    assert read_lengths(tmp_path).tolist() == [1, 70_000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"PAR1 this was cut off while it was copied", "cut off"),
        (b"PAR1" + b"\0" * 50 + (20).to_bytes(4, "little") + b"PAR1", "no readable Parquet"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, message):
    (tmp_path / "broken.parquet").write_bytes(content)
    with pytest.raises(DataError, match=rf"broken\.parquet.*{message}"):
        read_lengths(tmp_path / "broken.parquet")


def test_broken_pages_name_the_file(wide_file):
    group = pq.read_metadata(wide_file).row_group(2)
    chunks = [group.column(index) for index in range(group.num_columns)]
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == "seq_len")
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(Path(wide_file).read_bytes())
    data[first : first + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    Path(wide_file).write_bytes(data)
    with pytest.raises(DataError, match=r"wide\.parquet, after row"):
        read_lengths(wide_file, column="seq_len")


def test_without_pyarrow_the_install_command_is_given(wide_file, monkeypatch):
    import sys

    from lengthwise.errors import MissingDependencyError

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[parquet\]'"):
        read_lengths(wide_file)


def test_nested_names_do_not_mislead_the_choice_of_bytes(tmp_path):
    """A column "a" must not drag in a column "ab": only real children count."""
    table = pa.table({"a": [[1], [2, 3]], "ab": [[1] * 9, [2] * 9]})
    pq.write_table(table, tmp_path / "n.parquet")
    assert read_lengths(tmp_path / "n.parquet", column="a").tolist() == [1, 2]
    schema = SimpleNamespace(column=lambda i: SimpleNamespace(path=["a.list.item", "ab", "a"][i]))
    assert parquet._leaves(SimpleNamespace(schema=schema, num_columns=3), "a") == [0, 2]
