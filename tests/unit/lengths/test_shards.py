"""Directories of shards: what they hold, what is refused, what a second scan keeps."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lengthwise as lw
from lengthwise.core.fingerprint import lengths_fingerprint, parts_fingerprint
from lengthwise.errors import BadLengthError, ConfigError, DataError
from lengthwise.lengths import shard_scan
from lengthwise.lengths.mapped import map_lengths
from support.shard_sources import some_lengths, write_jsonl, write_parquet, write_token_lists

COUNTS = [700, 1200, 1, 600]


def files_in(folder):
    """Name -> content of every file."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_shards_hold_the_lengths_in_order_in_the_smallest_dtype(tmp_path):
    # The files were written from these very lengths; none is above 2**16 - 1.
    lengths = np.minimum(write_parquet(tmp_path / "in", COUNTS), 2**16 - 1)
    assert lengths.max() < 2**16
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1000)
    shards = lw.open_shards(tmp_path / "out")
    # Jobs end once they have 1,000 rows: 700 + 1200, then 1 + 600.
    assert shards.offsets.tolist() == [0, 1900, 2501]
    assert [path.name for path in shards.paths] == ["lengths-00000.npy", "lengths-00001.npy"]
    assert [array.dtype for array in shards] == [np.uint16, np.uint16]
    assert np.concatenate([*shards]).tolist() == lengths.tolist()
    assert shards.histogram == lw.LengthHistogram.from_lengths(lengths)
    assert len(shards) == shards.num_samples == scan.num_kept == 2501
    content = b"lengths:2501:" + lengths.astype("<u4").tobytes()
    assert shards.fingerprint == hashlib.sha256(content).hexdigest()[:32]


def test_one_long_sample_widens_every_shard(tmp_path):
    # 2**16 needs a third byte; all shards are of one dtype, so that one kernel reads them all.
    for number, longest in enumerate((5, 2**16)):
        table = pa.table({"length": [1, longest]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    lw.write_shards(tmp_path / "*.parquet", tmp_path / "out", rows_per_shard=1)
    shards = lw.open_shards(tmp_path / "out")
    assert [array.dtype for array in shards] == [np.uint32] * 2
    assert np.concatenate([*shards]).tolist() == [1, 5, 1, 2**16]


def test_a_length_beyond_four_bytes_is_refused_by_name(tmp_path):
    pq.write_table(pa.table({"length": [1, 2**32]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: a length of 4,294,967,296 tokens is more"):
        lw.write_shards(tmp_path / "a.parquet", tmp_path / "out")


@given(
    st.lists(st.lists(st.integers(1, 2**32 - 1), max_size=5), max_size=5).filter(
        lambda parts: sum(map(len, parts))
    )
)
def test_a_fingerprint_does_not_depend_on_where_lengths_are_cut(parts):
    # It is a hash of their bytes one after the other.
    arrays = [np.array(part, np.int64) for part in parts]
    whole = np.concatenate(arrays)
    assert parts_fingerprint(arrays, whole.size) == lengths_fingerprint(whole)


def test_a_range_is_read_across_shards(tmp_path):
    lengths = write_parquet(tmp_path / "in", [3, 4, 5])
    lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    shards = lw.open_shards(tmp_path / "out")
    for start in range(13):
        for stop in range(start, 13):
            assert shards.read(start, stop).tolist() == lengths[start:stop].tolist()
            assert shards[start:stop].tolist() == lengths[start:stop].tolist()
    assert shards[:].dtype == np.int64
    assert shards[::-3].tolist() == lengths[::-3].tolist()
    assert shards[[5, 0, -1]].tolist() == lengths[[5, 0, -1]].tolist()
    assert shards[7] == lengths[7]


def test_token_lists_are_cut_at_row_groups(tmp_path):
    # 40 MB of tokens make parts of about 16 MiB each, so one file becomes several jobs.
    lengths = some_lengths(10_000) % 1_000 + 1
    write_token_lists(tmp_path / "a.parquet", lengths)
    lw.write_shards(tmp_path / "a.parquet", tmp_path / "out", rows_per_shard=1)
    shards = lw.open_shards(tmp_path / "out")
    assert len(shards.paths) > 1
    assert shards[:].tolist() == lengths.tolist()
    spans = [span for shard in shards.manifest.shards for span in shard.spans]
    assert [span.first_row for span in spans] == shards.offsets[:-1].tolist()


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_rows_left_out_are_counted_as_by_a_plain_scan(kind, tmp_path):
    # The plain scan is tested on its own; both must say the same of every row.
    if kind == "parquet":
        write_parquet(tmp_path / "in", COUNTS, nulls=[5, 699, 700, 2500])
    else:
        write_jsonl(tmp_path / "in", COUNTS, broken=[(0, 1), (1, 1200), (3, 7)])
    plain = lw.scan_lengths(tmp_path / "in", on_bad="skip")
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out", on_bad="skip", rows_per_shard=600)
    for name in ("num_bad", "num_rows_read", "first_bad", "files", "column", "warnings"):
        assert getattr(scan, name) == getattr(plain, name), name
    assert scan.shards[:].tolist() == plain.lengths.tolist()
    samples = np.arange(plain.num_kept)
    assert scan.source_rows(samples).tolist() == plain.row_index.tolist()
    assert scan.source_rows(samples[::-7]).tolist() == plain.row_index[::-7].tolist()


def test_a_bad_row_stops_with_the_message_of_a_plain_scan_and_keeps_what_is_done(tmp_path):
    write_parquet(tmp_path / "in", COUNTS, nulls=[1900, 2000])
    with pytest.raises(BadLengthError) as plain:
        lw.scan_lengths(tmp_path / "in")
    with pytest.raises(BadLengthError) as found:
        lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    assert str(found.value) == str(plain.value)
    assert "part-002.parquet, row 0" in str(found.value)
    with pytest.raises(DataError, match="a scan that did not end; run it again"):
        lw.scan_lengths(tmp_path / "out")


def test_a_scan_of_nothing_but_bad_rows_is_refused_as_by_a_plain_scan(tmp_path):
    write_parquet(tmp_path / "in", [3], nulls=[0, 1, 2])
    messages = set()
    for scan in (lw.scan_lengths, lambda *a, **k: lw.write_shards(*a, tmp_path / "out", **k)):
        with pytest.raises(BadLengthError) as found:
            scan(tmp_path / "in", on_bad="skip")
        messages.add(str(found.value))
    assert len(messages) == 1


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_a_scan_that_was_cut_off_goes_on_to_the_same_bytes(stop_after, tmp_path, monkeypatch):
    write_parquet(tmp_path / "in", COUNTS, nulls=[3])
    options = {"rows_per_shard": 1, "on_bad": "skip", "threads": 1}
    lw.write_shards(tmp_path / "in", tmp_path / "whole", **options)
    written, write = [], shard_scan._write

    def cut_off(directory, number, *rest):
        if len(written) == stop_after:
            raise KeyboardInterrupt
        written.append(number)
        return write(directory, number, *rest)

    monkeypatch.setattr(shard_scan, "_write", cut_off)
    with pytest.raises(KeyboardInterrupt):
        lw.write_shards(tmp_path / "in", tmp_path / "out", **options)
    monkeypatch.undo()
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out", **options)
    assert scan.num_found == stop_after
    assert files_in(tmp_path / "out") == files_in(tmp_path / "whole")


def test_a_line_of_the_log_that_was_cut_off_is_no_shard(tmp_path):
    # What a driver that is killed while it writes leaves behind.
    write_parquet(tmp_path / "in", COUNTS)
    lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    whole = files_in(tmp_path / "out")
    manifest = json.loads(whole["manifest.json"])
    settings = {name: manifest[name] for name in ("column", "on_bad", "tokenizer", "source")}
    settings["rows_per_shard"] = 1
    lines = [json.dumps(line) for line in (settings, *manifest["shards"][:3])]
    (tmp_path / "out/manifest.json").unlink()
    (tmp_path / "out/unfinished.jsonl").write_text("\n".join(lines)[:-9])
    (tmp_path / "out/.lengths-00003.npy.part").write_text("half")
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    assert scan.num_found == 2
    assert files_in(tmp_path / "out") == whole


def test_only_changed_files_are_read_again(tmp_path):
    write_parquet(tmp_path / "in", COUNTS)
    lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    pq.write_table(pa.table({"length": [9, 9]}), tmp_path / "in/part-002.parquet")
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    assert (scan.num_found, scan.num_kept) == (3, 2502)
    assert scan.shards[1900:1902].tolist() == [9, 9]
    assert scan.shards[:].tolist() == lw.read_lengths(tmp_path / "in").tolist()


def _remove(path):
    path.unlink()


def _cut(path):
    path.write_bytes(path.read_bytes()[:-2])


def _shorten(path):
    np.save(path, np.load(path)[:-1])


def _change(path):
    np.save(path, np.load(path)[::-1].copy())


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (_remove, "missing"),
        (_cut, "no array, or cut off"),
        (_shorten, "1,199 lengths, not 1,200"),
        (_change, "its lengths are others"),
    ],
)
def test_a_wrong_shard_is_refused_by_name_and_made_again(damage, fault, tmp_path):
    write_parquet(tmp_path / "in", COUNTS)
    lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    whole = files_in(tmp_path / "out")
    damage(tmp_path / "out/lengths-00001.npy")
    match = rf"1 of 4 shards are not what manifest\.json says: lengths-00001\.npy \({fault}\)"
    for refuse in (
        lw.read_lengths,
        lambda path: lw.open_shards(path, verify=True),
        lambda path: map_lengths([path]),  # as `plan DIR` does
    ):
        with pytest.raises(DataError, match=match):
            refuse(tmp_path / "out")
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1)
    assert scan.num_found == 3
    assert files_in(tmp_path / "out") == whole


def test_the_same_scan_again_reads_nothing(tmp_path):
    write_parquet(tmp_path / "in", COUNTS)
    lw.write_shards(tmp_path / "in", tmp_path / "out")
    whole = files_in(tmp_path / "out")
    scan = lw.write_shards(tmp_path / "in", tmp_path / "out")
    assert scan.num_found == len(scan.shards.paths) == 1
    assert files_in(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "tokens"}, "column = 'length', not 'tokens'"),
        ({"on_bad": "skip"}, "on_bad = 'error', not 'skip'"),
        ({"rows_per_shard": 7}, "rows_per_shard = 1048576, not 7"),
    ],
)
def test_another_scan_does_not_overwrite_a_directory(options, message, tmp_path):
    pq.write_table(pa.table({"length": [3, 4], "tokens": [5, 6]}), tmp_path / "a.parquet")
    lw.write_shards(tmp_path / "a.parquet", tmp_path / "out", column="length")
    before = files_in(tmp_path / "out")
    with pytest.raises(ConfigError, match=message):
        lw.write_shards(tmp_path / "a.parquet", tmp_path / "out", **{"column": "length", **options})
    pq.write_table(pa.table({"length": [3, 4]}), tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match=r"another scan \(other files"):
        lw.write_shards(tmp_path / "b.parquet", tmp_path / "out")
    assert files_in(tmp_path / "out") == before


def test_a_directory_of_other_things_is_left_alone(tmp_path):
    np.save(tmp_path / "a.npy", [3, 4])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/diary.txt").write_text("dear")
    with pytest.raises(ConfigError, match="holds something else"):
        lw.write_shards(tmp_path / "a.npy", tmp_path / "out")
    with pytest.raises(ConfigError, match="cannot be made"):
        lw.write_shards(tmp_path / "a.npy", tmp_path / "nowhere/out")
    assert files_in(tmp_path / "out") == {"diary.txt": b"dear"}


def test_somebody_elses_manifest_makes_no_shards(tmp_path):
    # The name is common; the files beside it are read as before.
    (tmp_path / "manifest.json").write_text('{"format": "theirs"}')
    (tmp_path / "a.jsonl").write_text('{"length": 3}\n{"length": 4}\n')
    with pytest.raises(BadLengthError, match=r"manifest\.json, line 1: missing key 'length'"):
        lw.read_lengths(tmp_path)
    assert lw.read_lengths(tmp_path / "*.jsonl").tolist() == [3, 4]
    with pytest.raises(DataError, match=r"is 'theirs', version None; this is read"):
        lw.open_shards(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"), [("num_samples", 7), ("fingerprint", None), ("shards", [])]
)
def test_a_manifest_that_contradicts_itself_is_refused(name, value, tmp_path):
    write_parquet(tmp_path / "in", COUNTS)
    lw.write_shards(tmp_path / "in", tmp_path / "out")
    path = tmp_path / "out/manifest.json"
    data = json.loads(path.read_text())
    if value is None:
        del data[name]
    else:
        data[name] = value
    path.write_text(json.dumps(data))
    with pytest.raises(DataError):
        lw.open_shards(tmp_path / "out")


def test_files_are_asked_for_where_there_are_none(tmp_path):
    for source in ([1, 2, 3], np.arange(3), []):
        with pytest.raises(ConfigError, match="reads files: give paths"):
            lw.write_shards(source, tmp_path / "out")
    with pytest.raises(ConfigError, match="engine must be"):
        lw.write_shards("a.npy", tmp_path / "out", engine="spark")
    with pytest.raises(ConfigError, match="rows_per_shard must be at least 1"):
        lw.write_shards("a.npy", tmp_path / "out", rows_per_shard=0)


def test_a_histogram_has_no_order_to_write(tmp_path):
    (tmp_path / "h.csv").write_text("length,count\n3,2\n")
    with pytest.raises(DataError, match="a histogram, which has no order"):
        lw.write_shards(tmp_path / "h.csv", tmp_path / "out")


def test_a_file_that_changes_while_it_is_scanned_is_noticed(tmp_path, monkeypatch):
    write_parquet(tmp_path / "in", [5, 6])
    read = shard_scan.read_job

    def read_later(reading, job):
        with (tmp_path / "in/part-000.parquet").open("ab") as file:
            file.write(b"more")
        return read(reading, job)

    monkeypatch.setattr(shard_scan, "read_job", read_later)
    with pytest.raises(DataError, match=r"part-000\.parquet was changed while it was scanned"):
        lw.write_shards(tmp_path / "in", tmp_path / "out", threads=1)


def test_an_edited_tokenizer_makes_other_shards(tmp_path):
    # The hash of its file is one of the settings.
    from tokenizers import Tokenizer, models, pre_tokenizers

    (tmp_path / "a.txt").write_text("one two\none\n")
    vocabulary = {"one": 0, "two": 1, "?": 2}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    scan = lw.write_shards(tmp_path / "a.txt", tmp_path / "out", tokenizer=str(path))
    assert scan.shards[:].tolist() == [2, 1]
    path.write_text(path.read_text() + " ")
    with pytest.raises(ConfigError, match=r"another scan \(tokenizer"):
        lw.write_shards(tmp_path / "a.txt", tmp_path / "out", tokenizer=str(path))
