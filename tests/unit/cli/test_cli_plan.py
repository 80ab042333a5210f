"""``lengthwise plan``: its numbers, for plans that are laid out and for those that are not."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.core import sampled
from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner, build_plan
from lengthwise.lengths import mapped
from lengthwise.lengths.shards import open_shards

FIXED = BatchingConfig(limits=BatchLimits(2000, 16), boundaries=(0, 100, 301), batch_sizing="fixed")
LENGTHS = np.arange(6_000) * 7919 % 300 + 1


@pytest.fixture
def place(tmp_path):
    np.save(tmp_path / "lengths.npy", LENGTHS.astype(np.uint16))
    for name, extra in (("fixed", ""), ("by_shards", "shards_per_group = 2\n")):
        (tmp_path / f"{name}.toml").write_text(
            'boundaries = [0, 100, 301]\nbatch_sizing = "fixed"\n'
            f"{extra}[limits]\nmax_tokens = 2000\nmax_batch_size = 16\n"
        )
    return tmp_path


def plan(*arguments):
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_plan_that_is_laid_out_says_all_of_it(place):
    """The numbers are those of the same plan from Python."""
    found = json.loads(
        plan(place / "lengths.npy", "--config", place / "fixed.toml", "--num-replicas", 8, "--json")
    )
    whole = build_plan(LENGTHS, FIXED, num_replicas=8)
    assert found["fingerprint"] == whole.fingerprint
    assert found["measured_batches"] == found["num_batches"] == whole.num_batches
    assert found["real_tokens"] == int(LENGTHS.sum())
    assert found["diversity"]["partner_repeat_rate"] > 0


def test_a_plan_that_is_too_large_is_measured_on_some_steps(place, monkeypatch):
    """Counts are exact; shares are of a fifth of the batches, and near those of all."""
    whole = json.loads(
        plan(place / "lengths.npy", "--config", place / "fixed.toml", "--num-replicas", 8, "--json")
    )
    monkeypatch.setattr(sampled, "MOST_BATCHES", 160)
    monkeypatch.setattr(sampled.sample_plan, "__defaults__", (160,))
    monkeypatch.setattr(mapped, "open_shards", None)  # nothing but the .npy file is opened
    arguments = (place / "lengths.npy", "--config", place / "fixed.toml", "--num-replicas", 8)
    some = json.loads(plan(*arguments, "--json"))
    assert some["measured_batches"] == 160 < some["num_batches"]
    for name in ("num_batches", "num_steps", "num_samples", "fingerprint", "num_split_batches"):
        assert some[name] == whole[name]
    assert some["efficiency"] == pytest.approx(whole["efficiency"], abs=0.03)
    assert some["diversity"]["partner_repeat_rate"] is None
    assert "are of 160 batches of whole steps" in plan(*arguments)
    plan(*arguments, "--output", place / "plan.parquet")
    assert pq.read_table(place / "plan.parquet").num_rows == whole["num_batches"]


def test_ten_thousand_replicas_are_planned_and_measured(place):
    """More replicas than batches of full size: they are cut until every replica has one."""
    np.save(place / "many.npy", np.tile(LENGTHS, 20).astype(np.uint16))
    text = plan(place / "many.npy", "--config", place / "fixed.toml", "--num-replicas", 10_000)
    assert "epoch 0 for 10,000 replicas" in text
    assert "batches split for equal replicas" in text


def test_files_are_shards(place):
    """Of mapped files and of files that are read, the kept rows of each."""
    parts = np.split(LENGTHS, [1_000, 2_500, 4_500])
    expected = Planner(parts, replace(FIXED, shards_per_group=2)).fingerprint
    for number, part in enumerate(parts):
        np.save(place / f"part{number}.npy", part.astype(np.uint16))
        pq.write_table(pa.table({"seq_len": part}), place / f"part{number}.parquet")
    for suffix in ("npy", "parquet"):
        files = sorted(place.glob(f"part*.{suffix}"))
        found = json.loads(plan(*files, "--config", place / "by_shards.toml", "--json"))
        assert found["fingerprint"] == expected


def test_rows_that_were_left_out_are_not_counted_to_their_shard(place):
    """Three rows of the first file are bad: its shard has three samples fewer."""
    rows = [{"seq_len": n} for n in (5, None, 7, None, None)]
    (place / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "b.jsonl").write_text(json.dumps({"seq_len": 9}) + "\n")
    found = plan(
        place / "a.jsonl", place / "b.jsonl", "--config", place / "by_shards.toml", "--json",
        "--on-bad", "skip", "--column", "seq_len",
    )  # fmt: skip
    config = BatchingConfig.from_dict(json.loads(found)["config"])
    assert (
        json.loads(found)["fingerprint"]
        == Planner([5, 7, 9], config, shard_sizes=[2, 1]).fingerprint
    )


@pytest.mark.parametrize("content", [np.zeros((2, 2), np.int64), np.array([1.0, 2.0])])
def test_what_is_not_a_row_of_whole_numbers_is_read_not_mapped(tmp_path, content):
    """Reading says what is wrong with it, or makes lengths of it."""
    np.save(tmp_path / "a.npy", content)
    assert mapped.map_lengths([tmp_path / "a.npy"]) is None
    assert mapped.map_lengths([tmp_path / "missing.npy"]) is None
    assert mapped.map_lengths([tmp_path]) is None
    (tmp_path / "b.npy").write_bytes(b"no array")
    assert mapped.map_lengths([tmp_path / "b.npy"]) is None


def test_shards_of_a_scan_are_mapped_and_planned(place, monkeypatch):
    """From the command line and from Python the same plan as from the lengths themselves."""
    for number, part in enumerate(np.split(LENGTHS, [2_000, 4_000])):
        pq.write_table(pa.table({"seq_len": part}), place / f"part{number}.parquet")
    files = [str(place / f"part{number}.parquet") for number in range(3)]
    scan = ["scan", *files, "-o", str(place / "shards"), "--rows-per-shard", "2000"]
    assert CliRunner().invoke(app, scan).exit_code == 0
    monkeypatch.setattr("lengthwise.cli.plan.load_lengths", None)  # nothing is read
    found = json.loads(plan(place / "shards", "--config", place / "fixed.toml", "--json"))
    expected = build_plan(LENGTHS, FIXED)
    assert found["fingerprint"] == expected.fingerprint
    shards = open_shards(place / "shards")
    assert len(shards.paths) == 3
    assert build_plan(shards, FIXED).fingerprint == expected.fingerprint
    local = replace(FIXED, shards_per_group=2)
    by_shards = json.loads(plan(place / "shards", "--config", place / "by_shards.toml", "--json"))
    assert by_shards["fingerprint"] == build_plan(shards, local).fingerprint
