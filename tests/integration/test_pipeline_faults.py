"""What goes wrong on purpose: each fault ends the run, or does not, as documented, within a bound.

Faults are real: signals, a full file system, an allocation that fails. All runs have two target
workers and two drafter ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import warnings

import pytest
import torch

from lengthwise.dflash.training.setup import store_of
from lengthwise.errors import LengthwiseWarning, TrainingError
from lengthwise.pipeline.entries import Entries
from lengthwise.pipeline.worker import _Worker, work
from support.dflash_runs import small_config, small_run_folder
from support.pipeline_runs import (
    Watching,
    bounded_processes,
    check_nothing_left,
    quick_processes,
    run,
)

PATIENCE = 90
"""Seconds of silence; a busy machine takes some to load a model."""
CHANGES = {
    "epochs": 4,
    "evaluation": {"num_prompts": 0},
    "checkpoint": {"every_steps": 1},
    "pipeline": {"prefetch_batches": 1},
    "workers": 2,
    "ranks": 2,
}
"""Of the small run: long enough for work to be left when a fault falls, and saved at every step."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def expected(folder, tmp_path_factory):
    """Losses of the run without a fault: the same two ranks, which add in the same order."""
    with quick_processes():
        _, seen = run(folder, tmp_path_factory.mktemp("whole"), **CHANGES)
    return seen.losses


@pytest.fixture(autouse=True)
def bounded():
    """Nothing here may take for ever."""
    with bounded_processes():
        yield


def killing(name, number, after=2):
    return Watching(after, lambda seen: seen.kill(name, number))


def fails(folder, output, observer, **changes):
    """The error a run ends with; what it warned of does not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LengthwiseWarning)
        with pytest.raises(TrainingError) as caught:
            run(folder, output, observer, **{**CHANGES, **changes})
    check_nothing_left(observer)
    return str(caught.value)


def check_goes_on(folder, output, observer, expected):
    """What was learnt, and what a resumed run learns, is what an undisturbed run learns."""
    steps = {place.num_steps: result.sums.loss for place, result, _ in observer.steps}
    _, rest = run(folder, output, **CHANGES)
    steps |= {place.num_steps: result.sums.loss for place, result, _ in rest.steps}
    assert [steps[number] for number in sorted(steps)] == expected
    return rest


def greedy_work(wire, task):
    """A target worker that runs out of memory, for real, at the third batch."""
    plain = _Worker._run

    def run_greedily(self, batch, *rest):
        if batch.arrival == 2:
            torch.empty(1 << 60, dtype=torch.uint8)
        plain(self, batch, *rest)

    _Worker._run = run_greedily
    work(wire, task)


def test_a_worker_that_raises_ends_the_run_with_its_traceback_and_the_state_saved(
    folder, tmp_path, expected
):
    seen = Watching()
    entries = Entries(work=greedy_work)
    error = fails(folder, tmp_path, seen, entries=entries, pipeline={"target_devices": ["cpu"]})
    assert error.startswith("target worker 0 (cpu) failed: RuntimeError: ")
    assert "run_greedily" in error  # the traceback's last lines
    # The third batch of seven an epoch: nothing, or little, could be learnt without it.
    assert "is saved in" in error or "nothing was learnt yet" in error
    check_goes_on(folder, tmp_path, seen, expected)


def test_a_killed_worker_is_done_without(folder, tmp_path, expected):
    """The other one runs its batches, and its evaluation."""
    seen = killing("target worker 0", signal.SIGKILL)
    with pytest.warns(LengthwiseWarning, match=r"target worker 0 \(cpu\) was killed by SIGKILL"):
        outcome, _ = run(folder, tmp_path, seen, **{**CHANGES, "evaluation": {"num_prompts": 1}})
    assert not outcome.interrupted
    assert seen.losses == expected
    assert len(seen.evaluations) == 5  # before the first step, and after each of four epochs
    check_nothing_left(seen)


def test_without_any_worker_left_the_run_ends_saved_and_goes_on_later(folder, tmp_path, expected):
    """The newest checkpoint is then damaged: the one before it serves, one step is done again."""
    seen = killing("target worker", signal.SIGKILL)
    error = fails(folder, tmp_path, seen)
    assert "was killed by SIGKILL, and no other target worker is left" in error
    assert f"step {len(seen.losses)} is saved in {seen.paths[-1]}" in error
    victim = seen.paths[-1] / "optimizer.pt"
    content = bytearray(victim.read_bytes())
    content[100] ^= 1
    victim.write_bytes(content)
    with pytest.warns(LengthwiseWarning, match=r"passed over: .*optimizer\.pt is not what was"):
        rest = check_goes_on(folder, tmp_path, seen, expected)
    assert rest.steps[0][0].num_steps == len(seen.losses)


def test_a_killed_rank_ends_the_run_and_the_last_checkpoint_stands(folder, tmp_path, expected):
    """The other rank waits for it in an all-reduce, and is not left there. It is not blamed."""
    seen = killing("drafter rank 1", signal.SIGKILL)
    error = fails(folder, tmp_path, seen)
    assert error.startswith("drafter rank 1 (cpu) was killed by SIGKILL")
    assert "the last checkpoint stands as it was" in error
    assert store_of(small_config(folder, tmp_path)).latest().num_steps >= 1
    check_goes_on(folder, tmp_path, seen, expected)


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_and_done_without(folder, tmp_path, expected):
    """SIGSTOP: it is there, and does nothing, and takes no message."""
    seen = killing("target worker 1", signal.SIGSTOP)
    with pytest.warns(LengthwiseWarning, match=r"worker 1 \(cpu\) did not answer for .* killed"):
        run(folder, tmp_path, seen, **{**CHANGES, "pipeline": {"timeout_seconds": PATIENCE}})
    assert seen.losses == expected
    check_nothing_left(seen)


@pytest.mark.slow
def test_a_rank_that_hangs_is_killed_and_ends_the_run(folder, tmp_path):
    """The other rank waits for it in the step, is silent as long, says so, and is not blamed."""
    seen = killing("drafter rank 0", signal.SIGSTOP)
    error = fails(folder, tmp_path, seen, pipeline={"timeout_seconds": PATIENCE})
    assert error.startswith("drafter rank 0 (cpu) did not answer for")
    assert "rank 1" not in error


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, with room for one checkpoint and a half."""
    place = tmp_path / "disk"
    place.mkdir()
    size = f"size={1536 * 1024}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_stops_no_step_but_the_last_checkpoint_must_be_written(
    folder, small_disk, expected
):
    """On the way a warning, at the end an error; with room made the run goes on."""
    config = small_config(folder, small_disk)
    filler = small_disk / "filler"

    def fill(_seen):
        # Others write there meanwhile: to the last byte, whatever is left.
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    seen = Watching(2, fill)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(TrainingError, match="No space left on device") as error:
            run(folder, small_disk, seen, **CHANGES)
    check_nothing_left(seen)
    assert "drafter rank 0 (cpu) failed: Checkpoint" in str(error.value)
    texts = [str(one.message) for one in caught if one.category is LengthwiseWarning]
    assert any("training goes on: " in text and "No space left" in text for text in texts)
    assert seen.losses == expected  # all of it was learnt
    last = store_of(config).latest()
    assert last is not None
    assert last.num_steps < len(expected)
    filler.unlink()
    check_goes_on(folder, small_disk, seen, expected)
