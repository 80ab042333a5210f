"""Reports by people who do this job (section A of the case list), each standing for its kind."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import BadLengthError, ColumnError
from lengthwise.lengths.api import read_lengths, scan_lengths

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import datasets

# toy data is often sorted or equal; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")


def test_b01_a_long_source_reports_progress_and_reads_one_column(tmp_path):
    """The bytes are counted in test_parquet_reading; here: progress adds up to every row."""
    lengths = np.arange(1_200_000) % 4_000 + 1
    text = pa.array(["some wide text"] * lengths.size).dictionary_encode()
    pq.write_table(
        pa.table({"text": text, "length": lengths}), tmp_path / "a.parquet", row_group_size=200_000
    )
    seen = []
    scan = scan_lengths(
        tmp_path / "a.parquet", progress=lambda *report: seen.append(report), threads=1
    )
    assert scan.column == "length"
    assert np.array_equal(scan.lengths, lengths)
    assert len(seen) > 1
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1] == (1_200_000, 1_200_000, "rows")


def test_b01_without_a_length_column_the_error_says_how_to_add_one(tmp_path):
    pq.write_table(pa.table({"text": ["a b", "c"], "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match=r"text \(string\), label \(int64\).*ds\.map.*tokenizer"):
        read_lengths(tmp_path / "a.parquet")


class _TokenizesOnAccess:
    """A data set whose rows are made by __getitem__ from an inner list that has no tokens."""

    def __init__(self, messages):
        self.dataset = [{"messages": message} for message in messages]

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return {"input_ids": self.dataset[index]["messages"].split()}


def test_b02_lengths_come_from_the_rows_the_loader_gets_not_from_an_inner_list():
    source = _TokenizesOnAccess(["a b c", "d", "e f"])
    scan = scan_lengths(source)
    assert scan.lengths.tolist() == [3, 1, 2]
    assert any("fetching each of the 3 rows" in warning for warning in scan.warnings)


def test_b02_a_transformed_data_set_is_refused_instead_of_measured_behind_its_back():
    stored = datasets.Dataset.from_dict({"input_ids": [[1], [2, 3]]})
    with pytest.raises(ColumnError, match="makes its rows on access"):
        read_lengths(stored.with_transform(lambda rows: {"input_ids": [[0] * 9 for _ in rows]}))


def test_b02_lengths_that_were_never_filled_in_do_not_pass():
    """All zero is an error; all equal is a warning, since it can be true."""
    with pytest.raises(BadLengthError, match=r"row 0: 0 tokens.*never filled in"):
        read_lengths([0] * 100)
    with pytest.raises(BadLengthError, match="none of the 100 rows has a usable length"):
        read_lengths([0] * 100, on_bad="skip")
    assert any("all 100 lengths are 512" in w for w in scan_lengths([512] * 100).warnings)


def test_b03_a_lazy_column_is_converted_in_bulk(monkeypatch):
    lengths = np.random.default_rng(0).integers(1, 5_000, 50_000)
    column = datasets.Dataset.from_dict({"length": lengths})["length"]

    def one_by_one(self, key):
        raise AssertionError(f"element access to the lazy column: {key!r}")

    for name in ("__getitem__", "__iter__"):
        monkeypatch.setattr(type(column), name, one_by_one)
    assert np.array_equal(read_lengths(column), lengths)


ROWS = [[1, 2], [3], [4, 5, 6], [7] * 9, [8, 8], [9] * 5, [1] * 4, [2] * 7]
FIXED = pa.list_(pa.int32(), 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds,
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.shuffle(seed=1).select(range(5)),
        lambda ds: ds.select([6, 1, 1, 3]),
        lambda ds: ds.select(range(2, 6)),
        lambda ds: ds.filter(lambda row: len(row["input_ids"]) > 2),
        lambda ds: ds.sort("rank", reverse=True).skip(1).take(4),
        lambda ds: ds.train_test_split(test_size=3, seed=0)["test"],
        lambda ds: ds.shard(3, 1),
        lambda ds: datasets.concatenate_datasets([ds.shuffle(seed=2), ds.select([5, 0])]),
        lambda ds: ds.with_format("numpy"),
        lambda ds: ds.shuffle(seed=3).with_format("numpy", columns=["rank"]),
        lambda ds: ds.flatten_indices(),
        lambda ds: ds.rename_column("rank", "r"),
    ],
)
@pytest.mark.parametrize("inner", [pa.list_(pa.int32()), pa.large_list(pa.int64())])
@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")  # by ds.sort
def test_b04_a_view_of_a_data_set_has_the_lengths_of_its_own_rows(change, inner):
    """The oracle is the row-by-row reading that the loader would do."""
    lists = pa.chunked_array([pa.array(ROWS[:3], inner), pa.array(ROWS[3:], inner)])
    table = pa.table({"input_ids": lists, "rank": list(range(len(ROWS)))})
    source = change(datasets.Dataset(datasets.table.InMemoryTable(table)))
    plain = source.with_format(None)
    expected = [len(plain[row]["input_ids"]) for row in range(len(plain))]
    assert read_lengths(source, column="input_ids").tolist() == expected
    by_column = source.with_format(None)["input_ids"]
    assert read_lengths(by_column).tolist() == expected


@given(
    rows=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=20),
    cut=st.integers(0, 19),
    size=st.integers(1, 20),
    pieces=st.integers(1, 4),
    kind=st.sampled_from(["list", "large_list", "fixed_size_list", "list_view"]),
)
def test_b04_slices_and_chunks_of_every_list_type(rows, cut, size, pieces, kind):
    types = {
        "list": pa.list_(pa.int16()),
        "large_list": pa.large_list(pa.int16()),
        "fixed_size_list": pa.list_(pa.int16(), 3),
        "list_view": pa.list_view(pa.int16()),
    }
    if kind == "fixed_size_list":
        rows = [[1, 2, 3] for _ in rows]
    step = -(-len(rows) // pieces)
    chunks = [
        pa.array(rows[first : first + step], types[kind]) for first in range(0, len(rows), step)
    ]
    column = pa.chunked_array(chunks, types[kind]).slice(cut, size)
    expected = [len(row) for row in column.to_pylist()]
    assert read_lengths(column).tolist() == expected
    assert read_lengths(pa.table({"input_ids": column})).tolist() == expected


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int32())])
def test_b06_a_null_row_is_never_counted_by_its_offsets(kind):
    """The null list keeps a span of two values in the offsets; it has no length all the same."""
    make = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
    offset_type = pa.int32() if pa.types.is_list(kind) else pa.int64()
    mask = pa.array([False, True, False, False])
    array = make.from_arrays(
        pa.array([0, 2, 4, 4, 5], offset_type), pa.array([1, 2, 9, 9, 3], pa.int32()), mask=mask
    )
    assert np.diff(array.offsets).tolist() == [2, 2, 0, 1]
    with pytest.raises(BadLengthError, match=r"row 1: null"):
        read_lengths(array)
    scan = scan_lengths(array, on_bad="skip")
    assert scan.lengths.tolist() == [2, 1]
    assert scan.row_index.tolist() == [0, 3]
    assert [(bad.row, bad.reason.split(":")[0]) for bad in scan.first_bad] == [
        (1, "null"),
        (2, "0 tokens"),
    ]


def test_b06_null_and_empty_lists_in_a_parquet_file(tmp_path):
    table = pa.table({"input_ids": pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32()))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    scan = scan_lengths(tmp_path / "a.parquet", on_bad="skip")
    assert (scan.num_rows_read, scan.num_kept, scan.num_bad) == (4, 2, 2)
    assert scan.row_index.tolist() == [0, 3]
    with pytest.raises(BadLengthError, match=r"a\.parquet, row 1: null"):
        read_lengths(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("uint8", [1, 255]),
        ("int8", [1, 127]),
        ("uint16", [65_535, 1]),
        ("int32", [65_536, 70_000, 2**31 - 1]),
        ("uint32", [65_537, 3_000_000_000, 2**32 - 1]),
        ("float32", [65_536, 2**24]),
        ("float64", [65_537, 3_000_000_000, 2**53]),
        ("uint64", [3_000_000_000, 2**53]),
        ("int64", [2**40, 1]),
    ],
)
def test_b07_no_integer_type_wraps(dtype, values, tmp_path):
    """Sums and products are compared with Python's integers, which cannot wrap."""
    array = np.array(values, dtype)
    pq.write_table(pa.table({"length": array}), tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", array)
    for source in (array, tmp_path / "a.parquet", tmp_path / "a.npy", pa.array(array)):
        scan = scan_lengths(source)
        assert scan.lengths.dtype == np.int64
        assert scan.lengths.tolist() == values
        assert scan.histogram.num_tokens == sum(values)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.array([4, -1, 4], np.int8), "negative: -1"),
        (np.array([4.0, np.nan, 4.0]), "NaN"),
        (np.array([4.0, np.inf, 4.0], np.float32), "inf"),
        (np.array([4.0, 12.5, 4.0], np.float16), "fractional: 12.5"),
        (np.array([4, 0, 4], np.uint16), "0 tokens"),
        (np.array([4, 2**64 - 1, 4], np.uint64), "too large: 18,446,744,073,709,551,615"),
    ],
)
def test_b07_what_is_no_length_is_refused_with_its_row(values, reason, tmp_path):
    np.save(tmp_path / "a.npy", values)
    for source in (values, tmp_path / "a.npy", pa.array(values)):
        with pytest.raises(BadLengthError, match=f"row 1: {reason}"):
            read_lengths(source)
        scan = scan_lengths(source, on_bad="skip")
        assert (scan.lengths.tolist(), scan.row_index.tolist()) == ([4, 4], [0, 2])


def test_b08_totals_beyond_32_bits_are_exact():
    """A million samples of 4,096 tokens are 2**12 * 10**6 tokens, above 2**31."""
    scan = scan_lengths(np.full(1_000_000, 4_096, np.uint16))
    assert scan.histogram.num_tokens == 4_096_000_000
    assert LengthHistogram.from_lengths([2**53] * 2_000).num_tokens == 2**53 * 2_000


BAD_LINES = b'\n{"length": 7}\n\n{"length": \n[]\n{"size": 1}\n{"length": "7"}\n{"length": 9}'


def test_b09_a_malformed_line_is_named_by_its_place_in_the_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(BAD_LINES)
    with pytest.raises(BadLengthError, match=r"a\.jsonl, line 1: blank line"):
        read_lengths(path)
    path.write_bytes(b'{"length": 7}\n{"length": 7}\n{"length": 7}\n{"length": \n')
    with pytest.raises(BadLengthError, match=r"a\.jsonl, line 4: malformed JSON"):
        read_lengths(path)


def test_b09_skipped_lines_are_counted_listed_and_keep_their_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(BAD_LINES)
    scan = scan_lengths(path, on_bad="skip")
    assert scan.lengths.tolist() == [7, 9]
    assert scan.row_index.tolist() == [1, 7]
    assert (scan.num_rows_read, scan.num_kept, scan.num_bad) == (8, 2, 6)
    assert [(bad.row, bad.unit, bad.reason.split(":")[0]) for bad in scan.first_bad] == [
        (1, "line", "blank line"),
        (3, "line", "blank line"),
        (4, "line", "malformed JSON"),
        (5, "line", "not a JSON object but a list of 0 items"),
        (6, "line", "missing key 'length'"),
        (7, "line", "mixed types"),
    ]


def test_b11_large_lists_in_many_chunks_are_read_without_combining_them(monkeypatch):
    """A chunk that would not fit a 32-bit offset once combined: combining must not be tried."""
    values = pa.array(np.zeros(1_000, np.int8))
    chunk = pa.LargeListArray.from_arrays(pa.array([0, 400, 1_000], pa.int64()), values)
    column = pa.chunked_array([chunk] * 300)
    assert read_lengths(column).tolist() == [400, 600] * 300
    source = datasets.Dataset(datasets.table.InMemoryTable(pa.table({"input_ids": column})))
    shuffled = source.shuffle(seed=0)
    expected = [[400, 600][row % 2] for row in shuffled._indices.column(0).to_pylist()]
    assert read_lengths(shuffled).tolist() == expected


def test_b11_lists_whose_combined_offsets_pass_32_bits():
    """Three chunks share one buffer of 2**30 values: together 3 * 2**30 elements, above 2**31."""
    values = pa.Array.from_buffers(
        pa.null(), 2**30, [None], null_count=2**30
    )  # null values need no memory, however many there are
    offsets = pa.array([0, 2**29, 2**30], pa.int32())
    chunk = pa.ListArray.from_arrays(offsets, values)
    column = pa.chunked_array([chunk] * 3)
    assert read_lengths(column).tolist() == [2**29] * 6
