"""Scanning on Ray finds what scanning on threads finds, to the last bit."""

import numpy as np
import pytest

import lengthwise as lw
from lengthwise.cluster.engine import RayTasks
from lengthwise.errors import BadLengthError, ClusterError, ColumnError, DataError
from lengthwise.lengths.engine import Failed
from support.shard_sources import some_lengths, write_jsonl, write_parquet, write_token_lists
from support.web_store import web_store

FIELDS = ("num_rows_read", "num_bad", "first_bad", "files", "column", "warnings", "histogram")


def same_scan(found, expected):
    for name in FIELDS:
        assert getattr(found, name) == getattr(expected, name), name
    assert found.lengths.dtype == np.int64
    assert found.lengths.tobytes() == expected.lengths.tobytes()
    if expected.row_index is None:
        assert found.row_index is None
    else:
        assert found.row_index.tobytes() == expected.row_index.tobytes()


def same_files(found, expected):
    contents = [
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (found, expected)
    ]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("on_bad", ["error", "skip"])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "lists", "gz"])
def test_ray_and_threads_find_the_same(kind, on_bad, local_ray, tmp_path):
    skipping = on_bad == "skip"
    if kind == "parquet":
        write_parquet(tmp_path / "in", [700, 1200, 0, 600], nulls=[5, 699, 700] if skipping else [])
    elif kind == "lists":
        (tmp_path / "in").mkdir()
        write_token_lists(tmp_path / "in/a.parquet", some_lengths(8_000) % 1_000 + 1)
    else:
        write_jsonl(tmp_path / "in", [300, 1, 400], broken=[(0, 2), (2, 9)] if skipping else [])
    if kind == "gz":
        import gzip

        for path in (tmp_path / "in").iterdir():
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    same_scan(
        lw.scan_on_ray(tmp_path / "in", on_bad=on_bad),
        lw.scan_lengths(tmp_path / "in", on_bad=on_bad),
    )
    options = {"rows_per_shard": 500, "on_bad": on_bad}
    lw.write_shards(tmp_path / "in", tmp_path / "local", **options)
    scan = lw.write_shards(tmp_path / "in", tmp_path / "ray", engine="ray", **options)
    assert scan.num_found == 0
    same_files(tmp_path / "ray", tmp_path / "local")


def test_a_scan_begun_by_one_engine_is_ended_by_the_other(local_ray, tmp_path):
    write_parquet(tmp_path / "in", [700, 1200, 3], nulls=[1902])
    with pytest.raises(BadLengthError):
        lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1, threads=1)
    with pytest.raises(BadLengthError, match=r"part-002\.parquet, row 2: null"):
        lw.write_shards(tmp_path / "in", tmp_path / "out", rows_per_shard=1, engine="ray")
    assert len((tmp_path / "out/unfinished.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("nulls", "options", "error"),
    [
        ([650, 1300, 40], {}, BadLengthError),
        ([*range(1800)], {"on_bad": "skip"}, BadLengthError),
        ([], {"column": "nothing"}, ColumnError),
        ([], {"column": "other"}, ColumnError),
    ],
)
def test_errors_are_those_of_a_plain_scan(nulls, options, error, local_ray, tmp_path):
    # The first bad row in source order, whichever task is done first.
    write_parquet(tmp_path / "in", [600, 600, 600], nulls=nulls)
    messages = set()
    for scan in (lw.scan_lengths, lw.scan_on_ray):
        with pytest.raises(error) as found:
            scan(tmp_path / "in", **options)
        assert type(found.value) is error
        messages.add(str(found.value))
    assert len(messages) == 1


def test_a_damaged_file_is_named_as_by_a_plain_scan(local_ray, tmp_path):
    write_parquet(tmp_path / "in", [600, 600])
    path = tmp_path / "in/part-001.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    messages = set()
    for scan in (lw.scan_lengths, lw.scan_on_ray):
        with pytest.raises(DataError) as found:
            scan(tmp_path / "in")
        messages.add(str(found.value))
    assert len(messages) == 1
    assert "part-001.parquet is no Parquet file, or is cut off" in messages.pop()


def test_tasks_read_from_a_store_that_all_processes_reach(local_ray, tmp_path):
    write_parquet(tmp_path / "web", [300, 40], nulls=[2])
    with web_store(tmp_path / "web") as store:
        source = f"{store.url}/*.parquet"
        same_scan(lw.scan_on_ray(source, on_bad="skip"), lw.scan_lengths(source, on_bad="skip"))


def test_a_tokenizer_is_sent_to_the_tasks(local_ray, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"one": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("one two\none\n" * (number + 1))
    source = tmp_path / "*.txt"
    same_scan(
        lw.scan_on_ray(source, tokenizer=tokenizer), lw.scan_lengths(source, tokenizer=tokenizer)
    )


def test_progress_reaches_the_total(local_ray, tmp_path):
    write_parquet(tmp_path / "in", [700, 1200])
    told = []
    options = {"rows_per_shard": 1, "engine": "ray", "progress": lambda *what: told.append(what)}
    lw.write_shards(tmp_path / "in", tmp_path / "out", **options)
    assert told[0] == (0, 1900, "rows")
    assert told[-1] == (1900, 1900, "rows")


def fail_three_times(folder, item):
    """An error of the network, which passes; attempts are counted in files."""
    attempts = len([*folder.glob(f"{item}-*")])
    (folder / f"{item}-{attempts}").touch()
    if attempts < 3:
        raise ConnectionResetError
    return item


def test_what_fails_for_a_while_is_tried_again(local_ray, tmp_path):
    found = dict(RayTasks(local_ray).run(fail_three_times, tmp_path, [7, 8]))
    assert found == {0: 7, 1: 8}
    assert len([*tmp_path.iterdir()]) == 2 * 4


def fail(shared, item):
    if item == 1:
        return Failed(DataError("one"))
    raise shared


@pytest.mark.parametrize("error", [DataError("of a file"), ZeroDivisionError("ours")])
def test_what_fails_for_good_is_the_error_itself(error, local_ray):
    results = RayTasks(local_ray).run(fail, error, [0])
    with pytest.raises(type(error), match=str(error)):
        list(results)


def die(_shared, _item):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_work_whose_worker_is_lost_every_time_is_given_up(local_ray, monkeypatch):
    # A job that kills every worker would otherwise run for ever.
    monkeypatch.setattr("lengthwise.cluster.engine.RETRIES", 1)
    with pytest.raises(ClusterError, match="work was lost 2 times, with its worker or its node"):
        list(RayTasks(local_ray).run(die, None, [0]))


def wait_for(folder, item):
    import time

    (folder / f"begun-{item}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return item


def test_only_so_many_jobs_are_begun_ahead(local_ray, tmp_path, monkeypatch):
    # What they found would fill the object store. One CPU of two is enough to see it.
    monkeypatch.setattr("lengthwise.cluster.engine.FEWEST_AHEAD", 3)
    monkeypatch.setattr("lengthwise.cluster.engine.AHEAD_PER_CPU", 0)
    begun = []

    class Counting:
        """Ray, its tasks counted."""

        def __getattr__(self, name):
            return getattr(local_ray, name)

        def wait(self, references, **options):
            begun.append(len(references))
            (tmp_path / "go").touch()
            return local_ray.wait(references, **options)

    results = RayTasks(Counting()).run(wait_for, tmp_path, range(8))
    assert sorted(result for _, result in results) == [*range(8)]
    assert max(begun) == 3
