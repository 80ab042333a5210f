"""Interrupted wherever it may be, a run goes on with the losses of one that was not."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lengthwise.dflash.training.describe import describe
from lengthwise.dflash.training.setup import store_of
from lengthwise.pipeline.coordinator import Coordinator
from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from support.dflash_runs import read_records, small_config, small_run_folder
from support.held_command import stand_still, start_held
from support.pipeline_runs import (
    BOUND_SECONDS,
    Watching,
    alive,
    check_gone,
    check_nothing_left,
    pipeline_config,
    quick_processes,
    run,
    start_apart,
)

PATIENCE = 600
"""Seconds for the command, whose five processes each import everything."""
QUIET = {"evaluation": {"num_prompts": 0}}
TWO_AND_TWO = {"workers": 2, "ranks": 2, **QUIET}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def expected(folder, tmp_path_factory):
    """Losses of the run without an interruption: two ranks, which add in the same order."""
    with quick_processes():
        _, seen = run(folder, tmp_path_factory.mktemp("whole"), **TWO_AND_TWO)
    return {place.num_steps: result.sums.loss for place, result, _ in seen.steps}


def send(*numbers):
    """Signals to this process, which is the coordinator, one after the other."""

    def act(_seen):
        for number in numbers:
            os.kill(os.getpid(), number)

    return act


@pytest.mark.slow
def test_signals_end_a_run_in_good_order_and_it_goes_on_as_if_nothing_had_happened(
    folder, tmp_path, expected
):
    """SIGINT in the first epoch, SIGTERM in the second; the state is saved where it ended, so no
    step is made twice.
    """
    losses, places = {}, []
    for after, number in ((2, signal.SIGINT), (5, signal.SIGTERM), (None, None)):
        seen = Watching(after, send(number))
        with quick_processes():
            outcome, _ = run(folder, tmp_path, seen, **TWO_AND_TWO)
        assert outcome.interrupted == (number is not None)
        assert outcome.position.num_steps == seen.steps[-1][0].num_steps
        assert outcome.checkpoint == seen.paths[-1]
        places += [place.num_steps for place, _, _ in seen.steps]
        losses |= {place.num_steps: result.sums.loss for place, result, _ in seen.steps}
        check_nothing_left(seen)
    assert places == list(range(1, len(expected) + 1))
    assert losses == expected


def test_a_second_signal_ends_it_at_once(folder, tmp_path):
    """No step and no checkpoint after it; a third one changes nothing."""
    seen = Watching(2, send(signal.SIGINT, signal.SIGTERM, signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)  # a background job ignores it, and may
    with quick_processes(), pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path, seen, **TWO_AND_TWO, checkpoint={"every_steps": 1})
    assert len(seen.steps) == 2
    check_nothing_left(seen)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_while_models_load_ends_it_at_once(folder, tmp_path, monkeypatch):
    """Nothing has begun, so there is nothing to save; children need not even have loaded."""
    seen = Watching()
    plain = small_config(folder, tmp_path)
    setup = set_up_pipeline(pipeline_config(folder, tmp_path, **QUIET))
    plain_run = Coordinator.run

    def run_and_be_told(coordinator, stop_wanted):
        os.kill(os.getpid(), signal.SIGTERM)
        return plain_run(coordinator, stop_wanted)

    monkeypatch.setattr(Coordinator, "run", run_and_be_told)
    # The product's own processes, which take seconds to start.
    outcome = run_pipeline(setup, None, seen)
    assert outcome.interrupted
    assert outcome.position.num_steps == 0
    assert outcome.checkpoint is None
    assert seen.steps == []
    assert multiprocessing.active_children() == []
    assert store_of(plain).paths() == []


class Writing(Watching):
    """Writes down each loss and all processes and memory, for whoever looks from outside.

    After some steps of its own it stands still, so that its end falls there.
    """

    def __init__(self, output, num_steps):
        super().__init__()
        self.output, self.num_steps = output, num_steps

    def stepped(self, position, result, facts):
        super().stepped(position, result, facts)
        seen = Path(self.output, "seen.json")
        seen.with_suffix(".new").write_text(json.dumps([self.pids, sorted(self.memory)]))
        seen.with_suffix(".new").rename(seen)
        line = json.dumps([position.num_steps, result.sums.loss])
        with Path(self.output, "losses.jsonl").open("a") as file:
            file.write(line + "\n")
        if len(self.steps) == self.num_steps:
            stand_still(Path(self.output, "never"))


def run_and_write(folder, output, num_steps):
    seen = Writing(output, num_steps)
    run(folder, output, seen, **TWO_AND_TWO, checkpoint={"every_steps": 2})


def lines_of(output):
    file = output / "losses.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def wait_for(condition, process=None, seconds=BOUND_SECONDS):
    """Until something is so; a process that is to bring it about must not end before."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        assert process is None or alive(process.pid)
        time.sleep(0.02)


@pytest.mark.slow
def test_after_a_kill_of_the_coordinator_nothing_is_left_and_the_run_goes_on(
    folder, tmp_path, expected
):
    """SIGKILL, twice, at different steps; its children and the shared memory go by themselves.

    Steps after the last checkpoint are made again, with the same losses.
    """
    for more in (1, 3):
        before = len(lines_of(tmp_path))
        process = start_apart(run_and_write, folder, tmp_path, more)
        wait_for(lambda before=before, more=more: len(lines_of(tmp_path)) >= before + more, process)
        process.kill()
        process.join(BOUND_SECONDS)
        pids, memory = json.loads((tmp_path / "seen.json").read_text())
        assert len(pids) == 4
        assert memory
        check_gone(pids.values())
        wait_for(lambda memory=memory: not any(Path(name).exists() for name in memory))
    seen = Watching()
    with quick_processes():
        outcome, _ = run(folder, tmp_path, seen, **TWO_AND_TWO)
    assert not outcome.interrupted
    written = [tuple(json.loads(line)) for line in lines_of(tmp_path)]
    written += [(place.num_steps, result.sums.loss) for place, result, _ in seen.steps]
    assert dict(written) == expected
    assert all(expected[number] == loss for number, loss in written)


@pytest.fixture
def command(tmp_path):
    """Begins the command on a config, in a session of its own; none is left afterwards.

    When it has made a given step it stands still until there is a file ``go``.
    """
    begun = []

    def begin(step=0):
        arguments = ["dflash", "train", tmp_path / "run.yaml"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        begun.append(
            start_held(arguments, step, tmp_path / "go", start_new_session=True, **streams)
        )
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:  # its number is still its own
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_the_command_survives_a_signal_to_all_its_processes_and_its_own_death(
    folder, tmp_path, expected, command
):
    """As a user has it: processes made anew. A system that shuts down sends SIGTERM to every
    process at once: exit code 130, saved. Then SIGKILL to the coordinator alone.
    """
    output = tmp_path / "out"
    settings = pipeline_config(
        folder, output, ranks=2, **QUIET, checkpoint={"every_steps": 1},
        pipeline={"timeout_seconds": PATIENCE},
    )  # fmt: skip
    (tmp_path / "run.yaml").write_text(describe(settings))

    def steps():
        if not (output / "metrics.jsonl").exists():
            return {}
        return {one["step"]: one["loss"] for one in read_records(output) if "loss" in one}

    first = command(step=2)
    wait_for(lambda: len(steps()) >= 2, first, PATIENCE)
    os.killpg(first.pid, signal.SIGTERM)
    (tmp_path / "go").touch()
    said, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, said
    assert "memory" in said  # it was printed what runs where, and what it takes
    assert "drafter rank 1 (cpu): weights and optimiser" in said
    assert max(steps()) == store_of(settings).latest().num_steps

    (tmp_path / "go").unlink()
    done = len(steps())
    second = command(step=done + 1)
    wait_for(lambda: len(steps()) > done, second, PATIENCE)
    group = processes_of_session(second.pid)
    assert len(group) >= 5
    second.kill()
    second.wait(PATIENCE)
    check_gone(group)

    said, _ = (last := command()).communicate(timeout=PATIENCE)
    assert last.returncode == 0, said
    assert sorted(steps()) == sorted(expected)
    assert steps() == pytest.approx(expected, rel=1e-5)


def processes_of_session(session):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(int(folder.name))
    return found
