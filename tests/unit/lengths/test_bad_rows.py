"""Rows without a usable length: named, or counted and listed, never lost."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.errors import BadLengthError, ConfigError, DataError
from lengthwise.lengths.api import read_lengths, scan_lengths
from lengthwise.lengths.rows import NUM_LISTED

# toy data is often sorted or equal; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")

GOOD = st.integers(1, 5_000)
BAD = st.one_of(
    st.none(),
    st.integers(-9, 0),
    st.floats(0.1, 40).filter(lambda value: value != int(value)),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, "12", [1], {"a": 1}, True]),
)


def _is_length(value):
    return type(value) is int and 1 <= value <= 2**53


@given(values=st.lists(st.one_of(GOOD, BAD), max_size=60))
def test_every_row_is_either_kept_or_counted_as_bad(values):
    values = [3] * 61 + values  # most of the rows the kind is learnt from are numbers
    scan = scan_lengths(values, on_bad="skip")
    kept = [(row, value) for row, value in enumerate(values) if _is_length(value)]
    assert scan.lengths.tolist() == [value for _, value in kept]
    assert scan.num_rows_read == len(values)
    assert scan.num_bad == len(values) - len(kept)
    bad_rows = [row for row, value in enumerate(values) if not _is_length(value)]
    assert [bad.row for bad in scan.first_bad] == bad_rows[:NUM_LISTED]
    if bad_rows:
        assert scan.row_index.tolist() == [row for row, _ in kept]
        with pytest.raises(BadLengthError, match=rf"row {bad_rows[0]}: "):
            read_lengths(values)
    else:
        assert scan.row_index is None


@given(values=st.lists(st.one_of(GOOD, st.none(), st.integers(-3, 0)), min_size=1, max_size=80))
def test_a_column_of_numbers_loses_no_row_in_any_format(values, tmp_path_factory):
    values = [9, *values]
    folder = tmp_path_factory.mktemp("rows")
    table = pa.table({"length": pa.array(values, pa.int32())})
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    with pa.ipc.new_stream(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    (folder / "a.jsonl").write_text("".join(json.dumps({"length": v}) + "\n" for v in values))
    (folder / "a.csv").write_text(
        "id,length\n" + "".join(f"7,{'' if v is None else v}\n" for v in values)
    )
    keep = [row for row, value in enumerate(values) if value is not None and value > 0]
    for name, first in (("a.parquet", 0), ("a.arrow", 0), ("a.jsonl", 1), ("a.csv", 2)):
        scan = scan_lengths(folder / name, on_bad="skip")
        assert scan.lengths.tolist() == [values[row] for row in keep]
        assert scan.num_kept + scan.num_bad == scan.num_rows_read == len(values)
        bad = [row + first for row in range(len(values)) if row not in keep]
        assert [row.row for row in scan.first_bad] == bad[:NUM_LISTED]


def test_row_index_counts_over_all_files(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"length": 1}\n\n{"length": 2}\n')
    (tmp_path / "b.jsonl").write_text('{"length": 0}\n{"length": 3}\n')
    scan = scan_lengths(tmp_path, on_bad="skip")
    assert scan.row_index.tolist() == [0, 2, 4]
    assert [(bad.file.rsplit("/", 1)[-1], bad.row) for bad in scan.first_bad] == [
        ("a.jsonl", 2),
        ("b.jsonl", 1),
    ]
    assert [file.num_rows for file in scan.files] == [3, 2]


def test_with_threads_the_first_bad_row_in_source_order_is_reported(tmp_path):
    """Whichever thread is faster: the error belongs to the first file that has one."""
    for shard in range(12):
        bad = b"\n" if shard >= 5 else b""
        rows = b'{"length": 4}\n' * (20_000 if shard == 5 else 3)
        (tmp_path / f"s-{shard:02}.jsonl").write_bytes(rows + bad)
    for _ in range(3):
        with pytest.raises(BadLengthError, match=r"s-05\.jsonl, line 20,001: blank line"):
            read_lengths(tmp_path, threads=4)


def test_a_record_that_starts_on_an_earlier_line_is_named_by_that_line(tmp_path):
    (tmp_path / "a.csv").write_text('text,length\n"two\nlines",5\n"two\nmore",x\n')
    with pytest.raises(BadLengthError, match=r"a\.csv, line 4: not a number: 'x'"):
        scan_lengths(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_bad_first_row_does_not_decide_what_the_column_is(name, tmp_path):
    rows = ['"x"', 5, 6] if name == "a.jsonl" else ["x", 5, 6]
    if name == "a.jsonl":
        (tmp_path / name).write_text("".join(f'{{"length": {row}}}\n' for row in rows))
    else:
        (tmp_path / name).write_text("length,t\n" + "".join(f"{row},t\n" for row in rows))
    scan = scan_lengths(tmp_path / name, on_bad="skip")
    assert (scan.lengths.tolist(), scan.row_index.tolist()) == ([5, 6], [1, 2])
    assert scan_lengths(["x", 5, 6], on_bad="skip").lengths.tolist() == [5, 6]


def test_csv_rows_of_another_width_and_blank_lines_are_bad(tmp_path):
    (tmp_path / "a.csv").write_text("id,length\n1,5\n\n2\n3,6,7\n4,8.0\n5,2.5\n")
    scan = scan_lengths(tmp_path / "a.csv", on_bad="skip")
    assert scan.lengths.tolist() == [5, 8]
    assert [(bad.row, bad.reason.split(":")[0]) for bad in scan.first_bad] == [
        (3, "blank line"),
        (4, "malformed"),
        (5, "malformed"),
        (7, "fractional"),
    ]


@pytest.mark.parametrize("value", ["a text", [1, 2], {"a": 1}, True, None])
def test_a_value_of_another_kind_is_bad_not_measured_some_other_way(value, tmp_path):
    rows = [{"length": 5}] * 150 + [{"length": value}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadLengthError, match=r"line 151: (mixed types|null)"):
        scan_lengths(tmp_path / "a.jsonl")


def test_json_with_more_than_one_value_on_a_line_is_malformed(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"length": 5}\n{"length": 5} {"length": 6}\n')
    with pytest.raises(BadLengthError, match="line 2: malformed JSON: more text after the value"):
        scan_lengths(tmp_path / "a.jsonl")


def test_bytes_that_are_not_utf8_are_bad_rows_of_jsonl_and_end_a_csv(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"length": 5}\n{"length": 5, "t": "\xff"}\n')
    with pytest.raises(BadLengthError, match=r"line 2: malformed JSON.*utf-8"):
        scan_lengths(tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_bytes(b"length,t\n5,\xff\n")
    with pytest.raises(DataError, match=r"a\.csv, near line 1: .*utf-8"):
        scan_lengths(tmp_path / "a.csv")


def test_deeply_nested_json_is_a_bad_row_not_a_crash(tmp_path):
    nested = '{"length": ' + "[" * 200_000 + "]" * 200_000 + "}"
    (tmp_path / "a.jsonl").write_text('{"length": 5}\n' + nested + "\n")
    with pytest.raises(BadLengthError, match="line 2: malformed JSON"):
        scan_lengths(tmp_path / "a.jsonl")


def test_nothing_but_bad_rows_is_an_error_even_when_skipping():
    with pytest.raises(BadLengthError, match="none of the 3 rows has a usable length; the first: "):
        scan_lengths([None, -1, 0], on_bad="skip")


def test_an_empty_source_has_no_lengths_and_says_so():
    scan = scan_lengths([])
    assert scan.lengths.tolist() == []
    assert scan.warnings == ("there are no samples",)


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="on_bad must be 'error' or 'skip', got 'drop'"):
        scan_lengths([1], on_bad="drop")
    with pytest.raises(ConfigError, match="threads must be at least 1"):
        scan_lengths([1], threads=0)


def test_an_array_of_something_else_is_refused(tmp_path):
    for array in (np.zeros((2, 2, 2), int), np.array(["a", "b"]), np.array(3)):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(DataError, match=r"a\.npy: lengths are a one-dimensional array"):
            scan_lengths(tmp_path / "a.npy")
    np.save(tmp_path / "o.npy", np.array([1, None]), allow_pickle=True)
    with pytest.raises(DataError, match=r"o\.npy cannot be read as an array of numbers"):
        scan_lengths(tmp_path / "o.npy")
    for name in ("b.npy", "b.npz"):
        (tmp_path / name).write_bytes(b"neither")
        with pytest.raises(DataError, match="cannot be read"):
            scan_lengths(tmp_path / name)
