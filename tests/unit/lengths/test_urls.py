"""Files behind URLs are read as local ones are, and no more of them than of those."""

import fsspec
import pyarrow.parquet as pq
import pytest

import lengthwise as lw
from lengthwise.errors import BadLengthError, DataError, MissingDependencyError
from lengthwise.lengths import storage
from support.counting_file import touched
from support.shard_sources import write_jsonl, write_parquet
from support.web_store import web_store


@pytest.fixture
def store(tmp_path):
    (tmp_path / "web").mkdir()
    with web_store(tmp_path / "web") as server:
        yield server


def test_a_web_server_gives_the_lengths_of_its_files(store, tmp_path):
    # The same files, read from the disk they lie on.
    write_parquet(tmp_path / "web/p", [300, 40], nulls=[2, 301])
    write_jsonl(tmp_path / "web/j", [30, 4], broken=[(1, 3)])
    for folder, pattern in (("p", "*.parquet"), ("j", "part-00[01].jsonl")):
        local = lw.scan_lengths(tmp_path / "web" / folder, on_bad="skip")
        for name in (f"{folder}/", f"{folder}/{pattern}", f"**/{pattern}"):
            scan = lw.scan_lengths(f"{store.url}/{name}", on_bad="skip")
            assert scan.lengths.tolist() == local.lengths.tolist()
            assert [bad.row for bad in scan.first_bad] == [bad.row for bad in local.first_bad]
            assert scan.files[1].path.startswith(f"{store.url}/{folder}/part-001.")


def test_an_error_names_url_and_row(store, tmp_path):
    write_parquet(tmp_path / "web", [300, 40], nulls=[301])
    with pytest.raises(BadLengthError, match=rf"^{store.url}/part-001\.parquet, row 1: null"):
        lw.scan_lengths(f"{store.url}/*.parquet")


def test_only_the_column_and_the_footer_cross_the_network(store, tmp_path):
    # Ranges are noted by the server; the other column's bytes are in none of them.
    write_parquet(tmp_path / "web", [5_000])
    lw.scan_lengths(f"{store.url}/part-000.parquet")
    ranges = [part for path, part in store.reads if part is not None and "part-000" in path]
    metadata = pq.read_metadata(tmp_path / "web/part-000.parquet")
    for group in range(metadata.num_row_groups):
        other = metadata.row_group(group).column(0)
        first = other.dictionary_page_offset or other.data_page_offset
        assert touched(ranges, first, first + other.total_compressed_size) == 0
    assert all(path.endswith("/part-000.parquet") for path, part in store.reads if part)


def test_shards_are_made_from_urls(store, tmp_path):
    lengths = write_parquet(tmp_path / "web", [300, 40])
    scan = lw.write_shards(f"{store.url}/*.parquet", tmp_path / "out", rows_per_shard=1)
    assert scan.shards[:].tolist() == lengths.tolist()
    again = lw.write_shards(f"{store.url}/*.parquet", tmp_path / "out", rows_per_shard=1)
    assert again.num_found == 2


def test_fsspec_file_systems_are_read(tmp_path):
    write_jsonl(tmp_path / "in", [30, 4])
    memory = fsspec.filesystem("memory")
    for path in sorted((tmp_path / "in").iterdir()):
        memory.pipe(f"/urls/{path.name}", path.read_bytes())
    memory.pipe("/urls/_SUCCESS", b"")
    expected = lw.read_lengths(tmp_path / "in").tolist()
    for source in ("memory://urls", "memory://urls/*.jsonl", ["memory://urls/part-000.jsonl",
                   "memory://urls/part-001.jsonl"]):  # fmt: skip
        assert lw.read_lengths(source).tolist() == expected


def test_pyarrows_file_systems_are_read(tmp_path, monkeypatch):
    # A bucket is imitated by a directory: paths in it begin with the bucket's name, as S3's do.
    from pyarrow import fs

    write_parquet(tmp_path / "bucket/corpus", [30, 4])
    system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(
        fs, "FileSystem", type("Fake", (), {"from_uri": lambda _uri: (system, "bucket")})
    )
    storage._store.cache_clear()
    try:
        scan = lw.scan_lengths("s3://bucket/corpus")
    finally:
        storage._store.cache_clear()
    assert scan.lengths.tolist() == lw.read_lengths(tmp_path / "bucket/corpus").tolist()
    assert scan.files[1].path == "s3://bucket/corpus/part-001.parquet"


def test_a_file_url_is_a_path(tmp_path):
    write_jsonl(tmp_path / "a b", [3])
    assert lw.read_lengths(f"file://{tmp_path}/a%20b").size == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.jsonl", "there is no file or directory 'http:.*nothing.jsonl'"),
        ("*.csv", r"no file matches 'http:.*/\*\.csv'"),
        ("a.npy", r"files of this kind are read from local disks"),
        ("a.xyz", "files of this kind are not read"),
        ("h.csv", "a histogram is read from local disks"),
    ],
)
def test_what_cannot_be_read_from_a_url_is_said(name, message, store, tmp_path):
    for file in ("a.npy", "a.xyz"):
        (tmp_path / "web" / file).write_bytes(b"x")
    if name == "h.csv":
        (tmp_path / "web/h.csv").write_text("length,count\n3,2\n")
    with pytest.raises(DataError, match=message):
        lw.read_lengths(f"{store.url}/{name}")


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/a\.jsonl cannot be reached"):
        lw.read_lengths("http://127.0.0.1:9/a.jsonl")


def test_a_missing_package_is_named(monkeypatch):
    def missing(_url):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(MissingDependencyError, match="other-store://: Install s3fs"):
        lw.read_lengths("other-store://bucket/a.jsonl")
