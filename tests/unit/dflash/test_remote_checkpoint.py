"""Checkpoints in a store that is named by a URL: whole or not at all, checked when read."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest
import torch

from lengthwise.dflash.training.checkpoint import CheckpointStore, read_checkpoint
from lengthwise.dflash.training.places import (
    fetch,
    names_in,
    on_disk,
    place_in,
    remove_folder,
    write_folder,
)
from lengthwise.dflash.training.remote_checkpoint import RemoteCheckpointStore
from lengthwise.dflash.training.setup import store_of
from lengthwise.errors import CheckpointError, CheckpointWriteError, LengthwiseWarning
from support.dflash_runs import small_config


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    """An empty folder in a store, one in memory and one that is a disk behind fsspec."""
    if request.param == "file":
        yield f"file://{tmp_path}/store/run"
        return
    yield f"memory://{tmp_path.name}/run"
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def write_drafter(folder: Path):
    folder.mkdir()
    (folder / "weights").write_bytes(b"w" * 1000)


def save(store, num_steps):
    state = {"num_steps": num_steps, "config": {}}
    return store.save(state, {"average": torch.arange(5.0)}, write_drafter)


def open_store(url):
    return fsspec.core.url_to_fs(url)


def test_a_checkpoint_comes_back_as_it_went(url):
    """And from a store as from a disk: the same files."""
    store = RemoteCheckpointStore(url)
    place = save(store, 7)
    assert place == f"{url}/step-00000007"
    found = store.latest()
    assert found.num_steps == 7
    assert found.place == place
    assert torch.equal(found.optimizer_state()["average"], torch.arange(5.0))
    assert (found.drafter_dir / "weights").read_bytes() == b"w" * 1000
    assert read_checkpoint(place).state == found.state


def test_the_oldest_go_and_the_newest_is_taken(url):
    store = RemoteCheckpointStore(url, keep=2)
    for number in (1, 2, 3):
        save(store, number)
    assert store.paths() == [f"{url}/step-00000003", f"{url}/step-00000002"]
    assert names_in(url) == ["step-00000002", "step-00000003"]


def test_the_manifest_is_sent_last_and_without_it_there_is_no_checkpoint(url, monkeypatch):
    """As of a process that was killed while it sent: nothing is there, and what was stays."""
    store = RemoteCheckpointStore(url)
    save(store, 1)
    system, path = open_store(url)
    plain, sent = type(system).put_file, []

    def put_file(self, source, target, *rest, **more):
        sent.append(target.rpartition("/")[2])
        if sent[-1] == "manifest.json":
            raise OSError("no room")
        return plain(self, source, target, *rest, **more)

    monkeypatch.setattr(type(system), "put_file", put_file)
    with pytest.raises(CheckpointWriteError, match="no room"):
        save(store, 2)
    assert sent[-1] == "manifest.json"
    assert sorted(sent) == ["manifest.json", "optimizer.pt", "state.json", "weights"]
    assert system.isfile(f"{path}/step-00000002/state.json")
    assert store.paths() == [f"{url}/step-00000001"]
    assert store.latest().num_steps == 1


def test_a_damaged_one_is_passed_over_by_name(url):
    store = RemoteCheckpointStore(url)
    save(store, 1)
    save(store, 2)
    system, path = open_store(url)
    with system.open(f"{path}/step-00000002/optimizer.pt", "wb") as stream:
        stream.write(b"x")
    with pytest.warns(LengthwiseWarning, match=r"step-00000002.*optimizer\.pt has 1 bytes"):
        assert store.latest().num_steps == 1


def test_where_nothing_is_there_is_none_and_a_name_that_is_wrong_is_told(url):
    assert RemoteCheckpointStore(url).paths() == []
    assert RemoteCheckpointStore(url).latest() is None
    with pytest.raises(CheckpointError, match="step-00000009: "):
        read_checkpoint(f"{url}/step-00000009")


def test_a_folder_replaces_what_was_there_and_can_be_removed(url):
    def write(content):
        def make(folder):
            (folder / "inner").mkdir(parents=True)
            (folder / "inner" / content).write_text(content)

        return make

    write_folder(url, write("old"))
    write_folder(url, write("new"))
    with on_disk(url) as folder:
        files = [
            file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
        ]
        assert files == ["inner/new"]
    assert not folder.exists()
    remove_folder(url)
    remove_folder(url)
    assert names_in(url) == []


def test_a_folder_on_disk_is_itself(tmp_path):
    place = place_in(tmp_path, "a", "b")
    write_folder(place, lambda folder: folder.mkdir(parents=True))
    with on_disk(place) as folder:
        assert folder == tmp_path / "a" / "b"
    assert folder.is_dir()
    remove_folder(place)
    assert not folder.exists()


def test_the_config_says_where_checkpoints_go(tmp_path):
    """A URL, another folder, or the run's own."""
    remote = store_of(small_config(tmp_path, tmp_path, checkpoint={"directory": "memory://x/run"}))
    assert isinstance(remote, RemoteCheckpointStore)
    assert remote.url == "memory://x/run/checkpoints"
    assert remote.place == "memory://x/run/checkpoints"  # in messages too, with both slashes
    local = store_of(small_config(tmp_path, tmp_path, checkpoint={"directory": "/elsewhere"}))
    assert type(local) is CheckpointStore
    assert local.directory == Path("/elsewhere/checkpoints")
    assert store_of(small_config(tmp_path, tmp_path)).directory == tmp_path / "checkpoints"


def test_files_that_others_wrote_meanwhile_are_seen(url, tmp_path):
    """fsspec remembers listings; a checkpoint of another machine must not be missed."""
    store = RemoteCheckpointStore(url)
    assert store.paths() == []
    save(RemoteCheckpointStore(url), 1)
    assert len(store.paths()) == 1
    copy = fetch(f"{url}/step-00000001", tmp_path / "copy")
    assert json.loads((copy / "state.json").read_text())["num_steps"] == 1
