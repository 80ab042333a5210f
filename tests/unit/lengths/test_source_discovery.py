"""Paths, globs, directories, saved data sets, histograms and broken files."""

import gzip
import json
import sys
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import (
    BadLengthError,
    ColumnError,
    ConfigError,
    DataError,
    MissingDependencyError,
)
from lengthwise.lengths import histogram_file
from lengthwise.lengths.api import read_lengths, scan_lengths
from lengthwise.lengths.histogram_file import load_histogram, save_histogram
from lengthwise.lengths.lengths_file import save_lengths

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import datasets

    datasets.disable_progress_bars()

# toy data is often sorted or equal; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")


def _jsonl(path, *lengths):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"length": length}) + "\n" for length in lengths))


def test_a_directory_is_read_recursively_sorted_without_hidden_and_underscore_files(tmp_path):
    _jsonl(tmp_path / "b" / "x.jsonl", 3)
    _jsonl(tmp_path / "a" / "y.jsonl", 1)
    _jsonl(tmp_path / "a" / "z.jsonl", 2)
    _jsonl(tmp_path / ".cache" / "x.jsonl", 9)
    _jsonl(tmp_path / "_temporary" / "x.jsonl", 9)
    (tmp_path / "README.md").write_text("not data")
    assert read_lengths(tmp_path).tolist() == [1, 2, 3]
    assert read_lengths(f"{tmp_path}/**/*.jsonl").tolist() == [9, 1, 2, 3], "a glob is explicit"
    assert read_lengths(f"{tmp_path}/[ab]").tolist() == [1, 2, 3]
    assert read_lengths([f"{tmp_path}/b/*", tmp_path / "a"]).tolist() == [3, 1, 2]


def test_a_file_whose_name_looks_like_a_glob_is_read(tmp_path):
    _jsonl(tmp_path / "part[1].jsonl", 4)
    assert read_lengths(tmp_path / "part[1].jsonl").tolist() == [4]


def test_a_directory_of_several_kinds_asks_for_a_glob(tmp_path):
    _jsonl(tmp_path / "x.jsonl", 3)
    (tmp_path / "x.csv").write_text("length\n3\n")
    with pytest.raises(DataError, match=r"several kinds .delimited, jsonl.; name the wanted ones"):
        read_lengths(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.parquet", "there is no file or directory 'nowhere.parquet'"),
        ("nowhere/*.parquet", "no file matches 'nowhere/"),
        ("nosuch://bucket/a.parquet", "nosuch://bucket cannot be opened"),
        ("file:///nowhere/a.parquet", "there is no file or directory '/nowhere/a.parquet'"),
        (["nowhere.csv"], "there is no file or directory 'nowhere.csv'"),
        ("2**3", r"no file matches '2\*\*3'"),
        ("x" * 5_000, "there is no file or directory 'xxx"),
    ],
)
def test_a_source_that_is_not_there_is_named(source, message):
    with pytest.raises(DataError, match=message):
        read_lengths(source)


def test_a_file_of_an_unknown_kind_or_an_empty_directory_lists_the_kinds(tmp_path):
    (tmp_path / "data.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match=r"data\.xlsx: files of this kind.*\.parquet.*\.jsonl"):
        read_lengths(tmp_path / "data.xlsx")
    with pytest.raises(DataError, match=r"holds no file of a known kind"):
        read_lengths(tmp_path)


def test_a_saved_data_set_is_read_in_its_own_order(tmp_path):
    source = datasets.Dataset.from_dict({"input_ids": [[1] * n for n in range(1, 41)]})
    shuffled = source.shuffle(seed=4).select(range(30))
    shuffled.save_to_disk(str(tmp_path / "saved"), num_shards=3)
    expected = [len(row["input_ids"]) for row in datasets.load_from_disk(str(tmp_path / "saved"))]
    scan = scan_lengths(tmp_path / "saved")
    assert scan.lengths.tolist() == expected
    assert len(scan.files) == 3
    assert (
        scan_lengths(datasets.load_from_disk(str(tmp_path / "saved"))).lengths.tolist() == expected
    )


def test_a_saved_data_set_with_splits_asks_for_one(tmp_path):
    split = datasets.Dataset.from_dict({"length": [1, 2]})
    both = datasets.DatasetDict({"train": split, "test": split})
    both.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(DataError, match=r"several splits; name one: .*saved/train, .*saved/test"):
        read_lengths(tmp_path / "saved")
    assert read_lengths(tmp_path / "saved" / "test").tolist() == [1, 2]
    with pytest.raises(DataError, match="DatasetDict; pass one split of it: train, test"):
        read_lengths(both)


def test_streaming_data_sets_have_no_row_numbers():
    stream = datasets.Dataset.from_dict({"length": [1, 2]}).to_iterable_dataset()
    with pytest.raises(DataError, match="has no row numbers"):
        read_lengths(stream)


def test_a_lazy_column_names_its_data_set():
    source = datasets.Dataset.from_dict({"length": [1, 2], "meta": [{"n": 1}, {"n": 2}]})
    assert scan_lengths(source["length"]).column == "length"
    with pytest.raises(ColumnError, match="column 'x' was asked for, but 'length' was passed"):
        read_lengths(source["length"], column="x")
    with pytest.raises(DataError, match="column 'n' is nested"):
        read_lengths(source["meta"]["n"])


def test_texts_of_a_shuffled_data_set_are_those_of_its_rows():
    texts = [" ".join("w" * n) for n in range(1, 31)]
    source = datasets.Dataset.from_dict({"text": texts}).shuffle(seed=1).select(range(20))
    expected = [len(row["text"].split()) for row in source]
    assert read_lengths(source, tokenizer=str.split).tolist() == expected


def test_a_csv_headed_length_count_is_a_histogram(tmp_path):
    (tmp_path / "h.csv").write_text("length,count\n9,2\n4,3\n9,1\n5,0\n")
    scan = scan_lengths(tmp_path / "h.csv")
    assert scan.lengths.tolist() == [4, 4, 4, 9, 9, 9]
    assert scan.is_histogram
    (tmp_path / "h.tsv.gz").write_bytes(gzip.compress(b"length\tcount\n9\t2\n"))
    assert read_lengths(tmp_path / "h.tsv.gz").tolist() == [9, 9]
    (tmp_path / "c.csv").write_text("length,count,x\n9,2,0\n4,3,0\n")
    assert read_lengths(tmp_path / "c.csv").tolist() == [9, 4]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("9,x\n", "line 2: a length and a count are expected.*'9,x'"),
        ("9,2\n9\n", "line 3: a length and a count"),
        ("0,2\n", "line 2: a length is at least 1"),
        ("9,-1\n", "line 2: a length is at least 1 and a count at least 0, got 9 and -1"),
        ("9,1.5\n", "line 2: a length and a count are expected"),
    ],
)
def test_a_broken_histogram_is_named_by_its_line(tmp_path, rows, message):
    (tmp_path / "h.csv").write_text("length,count\n" + rows)
    with pytest.raises(BadLengthError, match=rf"h\.csv, {message}"):
        read_lengths(tmp_path / "h.csv")


def test_what_is_no_histogram_is_refused(tmp_path):
    (tmp_path / "h.csv").write_text("len,count\n1,2\n")
    (tmp_path / "h.json").write_text('{"lengths": [1]}\n')
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "m.json").write_text('{"lengths": [1, 2], "counts": [1]}')
    for name, message in (
        ("h.csv", "must be length,count"),
        ("h.json", "needs the keys"),
        ("b.json", "is not JSON"),
        ("m.json", "2 lengths but 1 counts"),
    ):
        with pytest.raises(DataError, match=message):
            load_histogram(tmp_path / name)
    for function in (
        load_histogram,
        lambda p: save_histogram(LengthHistogram.from_lengths([1]), p),
    ):
        with pytest.raises(ConfigError, match=r"\.csv, \.json or \.npz"):
            function(tmp_path / "h.xml")


def test_a_histogram_too_large_to_write_out_is_refused(monkeypatch):
    monkeypatch.setattr(histogram_file, "LARGEST_EXPANSION", 10)
    assert read_lengths(LengthHistogram.from_counts([3], [10])).size == 10
    with pytest.raises(DataError, match="11 samples are too many to hold one by one"):
        read_lengths(LengthHistogram.from_counts([3], [11]))


def test_a_whole_json_document_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "a.json").write_text('[\n  {"length": 1}\n]\n')
    with pytest.raises(DataError, match=r"one JSON document, not JSON Lines.*jq"):
        read_lengths(tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"length": 1}\n{"length": 2}\n')
    assert read_lengths(tmp_path / "b.json").tolist() == [1, 2]
    (tmp_path / "c.json").write_text("nonsense\n")
    with pytest.raises(ColumnError, match="It has no columns"):
        read_lengths(tmp_path / "c.json")


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_broken_compression_names_the_file(tmp_path, suffix):
    import zstandard

    data = json.dumps({"length": 5}).encode() + b"\n"
    compress = gzip.compress if suffix == "gz" else zstandard.ZstdCompressor().compress
    whole = compress(data * 20_000 + np.random.default_rng(0).bytes(50_000))
    for content in (whole[:-5000], b"nothing of the kind"):
        path = tmp_path / f"a.jsonl.{suffix}"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"a\.jsonl\.{suffix}"):
            read_lengths(path, on_bad="skip")


def test_zst_without_the_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl.zst").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[zstd\]'"):
        read_lengths(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"FEA1....", "Feather V1"), (b"ARROW1\0\0 cut", "no Arrow file"), (b"", "no Arrow file")],
)
def test_a_broken_arrow_file_is_named(tmp_path, content, message):
    (tmp_path / "a.arrow").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.arrow is .*{message}"):
        read_lengths(tmp_path / "a.arrow")


def test_only_the_wanted_column_of_an_arrow_file_is_decoded(tmp_path):
    """The other column's buffers are not valid compressed data: decoding them would fail."""
    table = pa.table({"wide": ["x" * 1_000] * 500, "length": list(range(1, 501))})
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    data = bytearray((tmp_path / "a.arrow").read_bytes())
    frame = data.index(b"\x04\x22\x4d\x18", data.index(b"\x04\x22\x4d\x18") + 1)  # wide's values
    data[frame : frame + 4] = b"\0\0\0\0"
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(OSError, match="LZ4"):
        pa.ipc.open_file(tmp_path / "a.arrow").read_all()
    assert read_lengths(tmp_path / "a.arrow").tolist() == list(range(1, 501))


def test_objects_that_speak_the_arrow_protocol_are_tables():
    import pandas as pd

    frame = pd.DataFrame({"length": [3, 1], "text": ["a", "b"]})
    assert scan_lengths(frame).column == "length"
    assert read_lengths(frame["length"]).tolist() == [3, 1]


def test_lengths_are_saved_only_where_they_can_be(tmp_path):
    scan = scan_lengths([1, 2])
    with pytest.raises(ConfigError, match=r"saved as .npy or .parquet, not 'a.csv'"):
        save_lengths(scan, tmp_path / "a.csv")
    with pytest.raises(ConfigError, match="there is no directory"):
        save_lengths(scan, tmp_path / "nowhere" / "a.npy")
    save_lengths(scan, tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"row": [0, 1], "length": [1, 2]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet"]
