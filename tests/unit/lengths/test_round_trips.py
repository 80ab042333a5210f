"""The same lengths come back, in order, from every kind of source."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.histogram import LengthHistogram
from lengthwise.lengths.api import read_lengths, scan_lengths
from lengthwise.lengths.histogram_file import load_histogram, save_histogram
from lengthwise.lengths.lengths_file import save_lengths
from support.sources import FILES, MEMORY

# toy data is often sorted or equal; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=30)


@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
@given(lengths=LENGTHS)
@settings(max_examples=12, deadline=None)
def test_every_file_format_gives_back_the_lengths_written(write, lengths):
    """The writers are other people's code, so agreement is not by construction."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(lengths, Path(folder))
        scan = scan_lengths(path)
        assert scan.lengths.dtype == np.int64
        assert scan.lengths.tolist() == lengths
        assert sum(file.num_rows for file in scan.files) == len(lengths)
        assert read_lengths(str(path), threads=1).tolist() == lengths


@pytest.mark.parametrize("make", MEMORY.values(), ids=MEMORY.keys())
@given(lengths=LENGTHS)
@settings(max_examples=15, deadline=None)
def test_every_object_in_memory_gives_its_lengths(make, lengths):
    scan = scan_lengths(make(lengths))
    assert scan.lengths.dtype == np.int64
    assert scan.lengths.tolist() == lengths
    assert scan.files == ()
    assert scan.row_index is None


@given(lengths=LENGTHS)
@settings(max_examples=25, deadline=None)
def test_a_saved_histogram_gives_the_lengths_in_rising_order(lengths):
    """A histogram has no order; sorted() is the only one it can promise."""
    histogram = LengthHistogram.from_lengths(lengths)
    assert read_lengths(histogram).tolist() == sorted(lengths)
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".csv", ".json", ".npz"):
            path = Path(folder) / f"h{suffix}"
            save_histogram(histogram, path)
            assert load_histogram(path) == histogram
            scan = scan_lengths(path)
            assert scan.lengths.tolist() == sorted(lengths)
            assert scan.is_histogram
            assert not any("sorted" in warning for warning in scan.warnings)


@given(lengths=LENGTHS, bad=st.sets(st.integers(0, 29)))
@settings(max_examples=25, deadline=None)
def test_saved_lengths_are_read_back_and_keep_their_rows(lengths, bad):
    values = [None if row in bad else length for row, length in enumerate(lengths)]
    kept = [(row, length) for row, length in enumerate(values) if length is not None]
    if not kept:
        return
    scan = scan_lengths(values, on_bad="skip")
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".npy", ".parquet"):
            save_lengths(scan, Path(folder) / f"lengths{suffix}")
        assert read_lengths(f"{folder}/lengths.npy").tolist() == [length for _, length in kept]
        rows = read_lengths(f"{folder}/lengths.parquet", column="length")
        assert rows.tolist() == [length for _, length in kept]
        import pyarrow.parquet as pq

        table = pq.read_table(f"{folder}/lengths.parquet").to_pylist()
        assert [(row["row"], row["length"]) for row in table] == kept


def test_a_source_in_memory_is_neither_changed_nor_shared():
    """Later writes to the caller's array must not reach into a scan."""
    mine = np.array([3, 1, 2], np.int64)
    theirs = read_lengths(mine)
    mine[0] = 99
    assert theirs.tolist() == [3, 1, 2]
    theirs[1] = 50
    assert mine.tolist() == [99, 1, 2]
    assert mine.flags.writeable


def test_several_files_count_as_one_source_in_the_order_given(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"length": 1}\n')
    (tmp_path / "a.jsonl").write_text('{"length": 2}\n{"length": 3}\n')
    paths = [tmp_path / "b.jsonl", tmp_path / "a.jsonl"]
    assert read_lengths(paths).tolist() == [1, 2, 3]
    assert read_lengths(str(tmp_path / "*.jsonl")).tolist() == [2, 3, 1]
    assert read_lengths(tmp_path).tolist() == [2, 3, 1]
