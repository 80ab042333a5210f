"""Everything that is written carries the name and version that the page on formats lists."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import lengthwise as lw
from lengthwise.core import file_format
from lengthwise.core.file_format import FileFormat
from lengthwise.errors import ConfigError, DataError, PlanMismatchError
from lengthwise.loader import BucketBatchSampler, StreamingBucketBatcher

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
FORMATS = [one for one in vars(file_format).values() if isinstance(one, FileFormat)]
LENGTHS = [3, 5, 8, 8, 13]
CONFIG = lw.BatchingConfig(limits=lw.BatchLimits(max_tokens=32))


def parquet_metadata(path, key):
    from pyarrow import parquet

    return json.loads(parquet.read_schema(path).metadata[key])


def npz_stamp(path):
    with np.load(path, allow_pickle=False) as arrays:
        return {"format": str(arrays["format"]), "version": int(arrays["version"])}


def histogram(folder, suffix):
    path = folder / f"hist{suffix}"
    lw.save_histogram(lw.LengthHistogram.from_lengths(LENGTHS), path)
    return path


def written_plan(folder):
    path = folder / "plan.parquet"
    lw.write_plan(lw.build_plan(LENGTHS, CONFIG), path)
    return parquet_metadata(path, b"lengthwise")


def written_config(folder):
    lw.write_config(CONFIG, folder / "batching.toml")
    return tomllib.loads((folder / "batching.toml").read_text())


def written_lengths(folder):
    from lengthwise.lengths.lengths_file import save_lengths

    save_lengths(lw.scan_lengths(np.array(LENGTHS)), folder / "lengths.parquet")
    return parquet_metadata(folder / "lengths.parquet", b"lengthwise")


def written_shard(folder):
    from lengthwise.dflash.prepare.shards import METADATA_KEY, Tally, shard_path, write_shard
    from lengthwise.dflash.prepare.sources import Position

    path = shard_path(folder, 0)
    write_shard(path, [], Tally(), end=Position(), settings={})
    return parquet_metadata(path, METADATA_KEY)


def written_checkpoint(folder):
    from lengthwise.dflash.training.checkpoint import CheckpointStore

    store = CheckpointStore(folder)
    path = store.save({"num_steps": 1}, {}, lambda place: place.mkdir())
    return json.loads((path / "state.json").read_text())


def streamed(_):
    return StreamingBucketBatcher(lambda: iter([[1] * 4]), len, max_tokens=32).state_dict()


WRITERS = {
    "lengthwise histogram": lambda folder: json.loads(histogram(folder, ".json").read_text()),
    "lengthwise histogram, .npz": lambda folder: npz_stamp(histogram(folder, ".npz")),
    "lengthwise batching config": written_config,
    "lengthwise plan": written_plan,
    "lengthwise lengths": written_lengths,
    "lengthwise comparison": lambda _: lw.compare_strategies(
        LENGTHS, CONFIG.limits, num_buckets=1, num_replicas=1, frontier=False
    ).to_dict(),
    "lengthwise sampler state": lambda _: BucketBatchSampler(LENGTHS, max_tokens=32).state_dict(),
    "lengthwise stream state": streamed,
    "lengthwise prepared samples": written_shard,
    "lengthwise training checkpoint": written_checkpoint,
}
"""Kind -> what stands in what is written. Those that need a run are tested where runs are."""
ELSEWHERE = {
    "lengthwise drafter evaluation": "tests/unit/cli/test_dflash_decode.py",
    "lengthwise training config": "tests/unit/dflash/test_length_classes.py",
    "lengthwise calibration": "tests/unit/calibrate/test_calibration_file.py",
    "lengthwise prediction": "tests/unit/dflash/test_probe.py",
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_written_carries_its_format_and_version(kind, tmp_path):
    """A plan's version is that of the planning rules, which is 1 as all others are."""
    written = WRITERS[kind](tmp_path)
    assert written["format"] == kind.partition(",")[0]
    assert isinstance(written["version"], int)
    assert written["version"] >= 1


def test_every_format_has_a_writer_here_or_is_tested_elsewhere():
    # A new format must be added to one of the two lists.
    tested = {kind.partition(",")[0] for kind in WRITERS} | ELSEWHERE.keys()
    assert {one.name for one in FORMATS} <= tested
    for name, file in ELSEWHERE.items():
        assert f'"{name}"' in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted({one.name for one in FORMATS} | ELSEWHERE.keys()))
def test_the_page_lists_every_format(name):
    assert f"`{name}`" in PAGE


def test_what_has_no_name_is_read_as_the_first_version(tmp_path):
    """As files by hand, and those from before names, are."""
    path = tmp_path / "hist.json"
    path.write_text('{"lengths": [3, 5], "counts": [1, 2]}')
    assert lw.load_histogram(path).num_samples == 3
    config = tmp_path / "batching.toml"
    config.write_text("[limits]\nmax_tokens = 32\n")
    assert lw.read_config(config).limits.max_tokens == 32
    sampler = BucketBatchSampler(LENGTHS, max_tokens=32)
    state = sampler.state_dict()
    del state["format"]
    sampler.load_state_dict(state)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_histogram_comes_back_from_its_file(suffix, tmp_path):
    path = histogram(tmp_path, suffix)
    assert lw.load_histogram(path).to_lengths().tolist() == sorted(LENGTHS)
    assert sorted(lw.read_lengths(str(path))) == sorted(LENGTHS)


def test_a_newer_version_is_refused_with_both_versions(tmp_path):
    """Version 2 does not exist yet, so nothing here can know what it means."""
    path = tmp_path / "hist.json"
    values = {"format": "lengthwise histogram", "version": 2, "lengths": [3], "counts": [1]}
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"version 2; this release reads up to version 1"):
        lw.load_histogram(path)
    config = tmp_path / "batching.toml"
    config.write_text('format = "lengthwise batching config"\nversion = 2\n')
    with pytest.raises(ConfigError, match=r"version 2"):
        lw.read_config(config)
    sampler = BucketBatchSampler(LENGTHS, max_tokens=32)
    with pytest.raises(PlanMismatchError, match="version"):
        sampler.load_state_dict({**sampler.state_dict(), "version": 2})


def test_a_file_of_another_kind_is_refused_by_name(tmp_path):
    path = tmp_path / "hist.json"
    path.write_text(
        json.dumps({"format": "lengthwise comparison", "version": 1, "lengths": [], "counts": []})
    )
    with pytest.raises(DataError, match="lengthwise comparison"):
        lw.load_histogram(path)


def test_a_state_of_another_kind_is_refused():
    sampler = BucketBatchSampler(LENGTHS, max_tokens=32)
    with pytest.raises(PlanMismatchError):
        sampler.load_state_dict({**sampler.state_dict(), "format": "lengthwise stream state"})
    batcher = StreamingBucketBatcher(lambda: iter([[1] * 4]), len, max_tokens=32)
    with pytest.raises(PlanMismatchError):
        batcher.load_state_dict({**batcher.state_dict(), "format": "lengthwise sampler state"})
