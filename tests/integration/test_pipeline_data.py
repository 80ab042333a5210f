"""Data that are odd, wrong or too few, in a pipeline of two target workers and two ranks."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil

import pytest
from safetensors.torch import load_file, save_file

from lengthwise.dflash.training.setup import assemble, load_data, set_up, store_of
from lengthwise.errors import DataError, LengthwiseWarning, TrainingError
from lengthwise.pipeline.entries import Entries
from support.dflash_models import EOS_TOKEN
from support.dflash_runs import Silent, small_config, small_run_folder, write_rows
from support.pipeline_runs import (
    Watching,
    bounded_processes,
    check_nothing_left,
    recording_train,
    run,
    taken,
)

TWO_AND_TWO = {"workers": 2, "ranks": 2, "evaluation": {"num_prompts": 0}}
RECORDING = Entries(train=recording_train)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(autouse=True)
def bounded():
    """Nothing here may take for ever."""
    with bounded_processes():
        yield


def losses_alone(folder, output, **changes):
    """Of the same run in one process."""
    config = small_config(folder, output, **{"evaluation": {"num_prompts": 0}, **changes})
    observer = Silent()
    assemble(set_up(config), store_of(config), observer).run()
    return [result.sums.loss for _, result, _ in observer.steps]


def spoilt_folder(place, folder, token):
    """The folder with another last token of a sample that is trained on; which; and all samples."""
    shutil.copytree(folder, place)
    import pyarrow.parquet as pq

    data = load_data(small_config(place, place / "out"))
    sample = int(data.sample_ids[3])
    rows = pq.read_table(place / "samples.parquet").to_pylist()
    rows[sample]["input_ids"][-1] = token
    write_rows(place / "samples.parquet", rows)
    return place, sample, data.sample_ids.tolist()


def test_a_bad_sample_is_left_out_and_one_too_many_ends_the_run(folder, tmp_path):
    """It has a token that the target does not know; the others of its batch arrive (B47, B50)."""
    place, sample, everything = spoilt_folder(tmp_path / "in", folder, 4000)
    changes = {"epochs": 1, **TWO_AND_TWO}
    allowed, refused = {"max_bad_samples": 1}, {"max_bad_samples": 0}
    message = rf"left out: sample {sample}: .*4000"
    with pytest.warns(LengthwiseWarning, match=message) as told:
        outcome, seen = run(place, tmp_path / "out", entries=RECORDING, pipeline=allowed, **changes)
    assert len(told) == 1
    assert not outcome.interrupted
    assert seen.flow.num_bad == 1
    ids = [
        one for ranks in taken(tmp_path / "out").values() for rank in (0, 1) for one in ranks[rank]
    ]
    assert sorted(ids) == sorted(set(everything) - {sample})
    with pytest.raises(TrainingError) as caught, pytest.warns(LengthwiseWarning, match=message):
        run(place, tmp_path / "ended", seen := Watching(), pipeline=refused, **changes)
    check_nothing_left(seen)
    error = str(caught.value)
    assert error.startswith("1 samples turned out bad, more than pipeline.max_bad_samples=0")
    assert f"sample {sample}: " in error


def test_a_loss_that_is_not_finite_is_skipped_as_in_one_process(folder, tmp_path):
    """One token's embedding is infinite, and one sample has it: its steps are skipped (B51)."""
    place, sample, _ = spoilt_folder(tmp_path / "in", folder, EOS_TOKEN)
    file = place / "target" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.embed_tokens.weight"][EOS_TOKEN] = float("inf")
    save_file(tensors, file, metadata={"format": "pt"})
    alone = losses_alone(place, tmp_path / "alone")
    outcome, seen = run(place, tmp_path / "out", **TWO_AND_TWO)
    assert not outcome.interrupted
    outcomes = [result.outcome for _, result, _ in seen.steps]
    assert outcomes.count("skipped") == 2
    assert [math.isnan(loss) for loss in seen.losses] == [math.isnan(loss) for loss in alone]
    finite = [loss for loss in seen.losses if not math.isnan(loss)]
    assert finite == pytest.approx([loss for loss in alone if not math.isnan(loss)], rel=1e-5)
    lines = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert all(sample in json.loads(line)["sample_ids"] for line in lines)


@pytest.mark.parametrize(("count", "num_batches"), [(30, 2), (10, 1)])
def test_data_that_fill_no_whole_batch_are_all_learnt_from(count, num_batches, tmp_path):
    """30 samples in batches of 16, and 10 (B50): no rest is lost, and none waits for ever. Some
    samples have one token alone, or a last few supervised ones (B42). Steps have one sample each,
    so one of the two ranks has none.
    """
    small_run_folder(tmp_path, count=1, useless=0)
    write_rows(tmp_path / "samples.parquet", odd_rows(count))
    changes = {
        "batching": {"max_batch_size": 16, "max_tokens": 4096, "strategy": "random"},
        "remix": {"pool_batches": 1},
        "data": {"num_held_out": 0},
        "step": {"anchors_per_step": 8},
    }
    alone = losses_alone(tmp_path, tmp_path / "alone", **changes)
    outcome, seen = run(
        tmp_path, tmp_path / "out", entries=RECORDING, **TWO_AND_TWO, **changes,
    )  # fmt: skip
    assert not outcome.interrupted
    assert seen.losses == pytest.approx(alone, rel=1e-5)
    assert seen.flow.num_batches == 2 * num_batches
    steps = taken(tmp_path / "out")
    assert any(not ids for ranks in steps.values() for ids in ranks.values())
    for epoch in (0, 1):
        ids = [i for (e, _), ranks in steps.items() for r in (0, 1) for i in ranks[r] if e == epoch]
        assert sorted(ids) == list(range(count))


def odd_rows(count):
    """Lengths 2 to 9, then one of 40 tokens of which the last 3 are supervised; all can be learnt
    from. After them a few of one token each, which cannot.
    """
    rows = []
    for number in range(count + 3):
        length = 2 + number % 8 if number < count - 1 else 40 if number == count - 1 else 1
        supervised = 3 if length == 40 else length
        ids = [(7 * number + place) % EOS_TOKEN for place in range(length)]
        mask = [False] * (length - supervised) + [True] * supervised
        rows.append({"input_ids": ids, "loss_mask": mask, "seq_len": length})
    return rows


def test_an_epoch_without_a_sample_is_refused_before_anything_starts(tmp_path):
    """Each answer has one token, and a block needs two: there is no batch, and no step."""
    small_run_folder(tmp_path, count=12, useless=12)
    with pytest.raises(DataError, match="none of the 12 samples can be trained on"):
        run(tmp_path, tmp_path / "out", **TWO_AND_TWO)
    assert multiprocessing.active_children() == []
