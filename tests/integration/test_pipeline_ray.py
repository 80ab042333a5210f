"""The pipeline on Ray learns what it learns on one machine, whatever happens to its actors."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
import torch

from lengthwise.dflash.formats.load import load_native
from lengthwise.dflash.training.describe import describe
from lengthwise.dflash.training.places import names_in
from lengthwise.dflash.training.setup import store_of
from lengthwise.errors import ConfigError, LengthwiseWarning, TrainingError
from support.dflash_runs import read_records, small_run_folder
from support.held_command import start_held
from support.local_ray import running_ray
from support.pipeline_runs import Watching, pipeline_config, quick_processes, run
from support.ray_runs import (
    PATIENCE,
    RayWatching,
    actors,
    check_nothing_left_on_ray,
    killing,
    left_on_ray,
    run_on_ray,
)

pytestmark = pytest.mark.slow

CHANGES = {
    "epochs": 4,
    "evaluation": {"num_prompts": 1},
    "checkpoint": {"every_steps": 2},
    "workers": 2,
    "ranks": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # otherwise they come after everything else
        with running_ray(num_cpus=8) as ray:
            yield ray


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The same run by the engine of one machine: two ranks, which add in the same order."""
    output = tmp_path_factory.mktemp("whole")
    with quick_processes():
        _, seen = run(folder, output, **CHANGES)
    seen.weights = load_native(output / "drafter").state_dict()
    return seen


def evaluations(seen):
    return [
        (place.num_steps, found.overall.tokens_per_verify, found.overall.num_mismatches, sums.loss)
        for place, found, sums in seen.evaluations
    ]


def check_same(seen, whole):
    """Losses, the order of steps, what held-out prompts gave: to the last bit, and once."""
    assert seen.losses == whole.losses
    assert seen.places == list(range(1, len(whole.losses) + 1))
    assert sorted(evaluations(seen), key=lambda one: one[0]) == evaluations(whole)


def test_everything_is_as_on_one_machine_to_the_last_bit(folder, tmp_path, whole):
    """And each process says on which machine it runs."""
    outcome, seen = run_on_ray(folder, tmp_path, **CHANGES, pipeline={"probe_rounds": 1})
    assert not outcome.interrupted
    check_same(seen, whole)
    ours = load_native(tmp_path / "drafter").state_dict()
    assert all(torch.equal(ours[name], weight) for name, weight in whole.weights.items())
    assert len(seen.expectations) == 1
    accounts = [*seen.flow.workers.values(), *seen.flow.ranks.values()]
    assert len(accounts) == 4
    assert all(account.host and account.busy_seconds > 0 for account in accounts)
    check_nothing_left_on_ray(seen)


def test_killed_targets_are_replaced_and_their_batches_run_again(folder, tmp_path, whole):
    """SIGKILL to the processes of both, so that without others nothing could go on."""
    seen = killing("target worker", signal.SIGKILL)
    with pytest.warns(LengthwiseWarning, match=r"[01] \(cpu\) was lost: .* takes its place"):
        outcome, _ = run_on_ray(folder, tmp_path, seen, **CHANGES)
    assert not outcome.interrupted
    check_same(seen, whole)
    assert sum(name.startswith("target worker") for name in seen.pids) == 4
    check_nothing_left_on_ray(seen)


def test_after_the_loss_of_a_rank_all_ranks_go_on_from_the_newest_checkpoint(
    folder, tmp_path, whole
):
    """Within the same run. Checkpoints, drafters to evaluate and the last one go to a URL."""
    url = f"file://{tmp_path}/shared"
    changes = {**CHANGES, "checkpoint": {"every_steps": 2, "directory": url}}
    seen = killing("drafter rank 1", signal.SIGKILL, after=5)
    with pytest.warns(LengthwiseWarning, match=r"1 \(cpu\) was lost: .* go on from step \d+ "):
        outcome, _ = run_on_ray(folder, tmp_path / "out", seen, **changes)
    assert outcome.checkpoint == f"{url}/checkpoints/step-{len(whole.losses):08d}"
    check_same(seen, whole)
    assert sum(name.startswith("drafter rank") for name in seen.pids) == 4
    assert names_in(url) == ["checkpoints", "drafter"]
    ours = load_native(tmp_path / "shared" / "drafter").state_dict()
    assert all(torch.equal(ours[name], weight) for name, weight in whole.weights.items())
    check_nothing_left_on_ray(seen)


def test_where_ranks_may_not_be_restarted_the_run_fails_and_goes_on_later(folder, tmp_path, whole):
    """On one machine, too: what a run is does not depend on the engine."""
    seen = killing("drafter rank 0", signal.SIGKILL, after=5)
    pipeline = {"ray": {"max_restarts": 0}}
    with pytest.raises(TrainingError, match=r"rank 0 .* was lost"):
        run_on_ray(folder, tmp_path, seen, **CHANGES, pipeline=pipeline)
    check_nothing_left_on_ray(seen)
    losses = dict(zip(seen.places, seen.losses, strict=True))
    with quick_processes():
        _, rest = run(folder, tmp_path, Watching(), **CHANGES)
    losses |= {place.num_steps: result.sums.loss for place, result, _ in rest.steps}
    assert [losses[place] for place in sorted(losses)] == whole.losses


def test_a_target_that_hangs_is_killed_and_replaced(folder, tmp_path, whole):
    """SIGSTOP: its process is there, and does nothing."""
    seen = killing("target worker 1", signal.SIGSTOP)
    patience = {"timeout_seconds": 150}
    with pytest.warns(LengthwiseWarning, match=r"1 \(cpu\) did not answer for .* its place"):
        run_on_ray(folder, tmp_path, seen, **CHANGES, pipeline=patience)
    check_same(seen, whole)
    check_nothing_left_on_ray(seen)


def test_of_ranks_the_one_that_hangs_is_named_and_all_start_again(folder, tmp_path, whole):
    """The other waits for it in the step, is as silent, and says why."""
    seen = killing("drafter rank 0", signal.SIGSTOP, after=5)
    patience = {"timeout_seconds": 150}
    with pytest.warns(LengthwiseWarning, match=r"go on from step \d+ ") as caught:
        run_on_ray(folder, tmp_path, seen, **CHANGES, pipeline=patience)
    (text,) = [str(one.message) for one in caught if "go on from step" in str(one.message)]
    assert text.startswith("drafter rank 0 (cpu) did not answer for ")
    assert "rank 1" not in text
    check_same(seen, whole)
    check_nothing_left_on_ray(seen)


def ask_for(output, count):
    """By the command, as a user does, but in this process."""
    from typer.testing import CliRunner

    from lengthwise.cli.app import build_app

    arguments = ["dflash", "scale", str(output), "--targets", str(count)]
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 0, result.output


class Scaling(RayWatching):
    """Asks for three targets; when the third is there and has run a batch, asks for one.

    Until there is one alone each step waits longer than the one before, so that the steps left
    suffice however long a process takes to start.
    """

    def __init__(self, output):
        super().__init__()
        self.output, self.asked, self.rooms = output, [], []

    def stepped(self, position, result, facts):
        super().stepped(position, result, facts)
        if self.rooms[-1:] != [1]:
            time.sleep(0.3 * 1.05**position.num_steps)
        if position.num_steps == 2:
            self.ask(3)

    def flowed(self, flow):
        super().flowed(flow)
        room = flow.prefetch_room // 2  # of one target
        if self.rooms[-1:] != [room]:
            self.rooms.append(room)
        third = flow.workers.get("target worker 2 (cpu)")
        if self.asked == [3] and room == 3 and third and third.padded_tokens:
            self.ask(1)

    def ask(self, count):
        self.asked.append(count)
        ask_for(self.output, count)


def test_targets_come_and_go_while_it_runs_and_nothing_else_changes(folder, tmp_path):
    """Three of two, then one, which alone runs what is left."""
    changes = {**CHANGES, "epochs": 40, "evaluation": {"num_prompts": 0}}
    with quick_processes():
        _, expected = run(folder, tmp_path / "local", **changes)
    output = tmp_path / "out"
    output.mkdir()
    config = pipeline_config(folder, output, pipeline={"engine": "ray"})
    (output / "train_config.json").write_text(config.model_dump_json())
    seen = Scaling(output)
    outcome, _ = run_on_ray(folder, output, seen, **changes)
    assert not outcome.interrupted
    assert seen.asked == [3, 1]
    assert [seen.rooms[0], max(seen.rooms), seen.rooms[-1]] == [2, 3, 1]
    assert seen.losses == expected.losses
    check_nothing_left_on_ray(seen)


def test_sigterm_to_the_command_saves_and_ends_with_130(folder, tmp_path, whole, cluster):
    """The command uses the cluster at hand, and leaves it as it was."""
    output = tmp_path / "out"
    address = cluster.get_runtime_context().gcs_address
    changes = {**CHANGES, "epochs": 40, "evaluation": {"num_prompts": 0}}
    settings = pipeline_config(
        folder, output, **changes, pipeline={"engine": "ray", "ray": {"address": address}}
    )
    (tmp_path / "run.yaml").write_text(describe(settings))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = start_held(["dflash", "train", tmp_path / "run.yaml"], 3, tmp_path / "go", **streams)

    def losses():
        if not (output / "metrics.jsonl").exists():
            return {}
        return {one["step"]: one["loss"] for one in read_records(output) if "loss" in one}

    try:
        until = time.monotonic() + PATIENCE
        while len(losses()) < 3:
            assert command.poll() is None, command.stdout.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(command.pid, signal.SIGTERM)
        (tmp_path / "go").touch()
        said, _ = command.communicate(timeout=PATIENCE)
    finally:
        command.kill()
        command.wait()
    assert command.returncode == 130, said
    done = losses()
    assert len(done) < 40
    assert max(done) == store_of(settings).latest().num_steps
    first = min(len(done), 4)  # the learning rate of the longer run has another course
    assert list(done)[:first] == list(range(1, first + 1))
    assert any("flow_host_target_0" in one for one in read_records(output))
    assert not actors()


def test_what_does_not_fit_the_cluster_is_refused_before_anything_is_loaded(folder, tmp_path):
    """More cores than there are; more features than the object store has room for."""
    pipeline = {"timeout_seconds": 2, "ray": {"cpus": 5}}
    with pytest.raises(ConfigError, match=r"wanted are 20 CPU in 4 bundles .* of 8 CPU; given up"):
        run_on_ray(folder, tmp_path, **CHANGES, pipeline=pipeline)
    pipeline = {"page_tokens": 200_000}
    with pytest.raises(
        ConfigError, match=r"targets \(1\) have 150\.0 MiB: lower remix\.pool_batch"
    ):
        run_on_ray(folder, tmp_path, **CHANGES, pipeline=pipeline)
    assert not actors()
    until = time.monotonic() + 20
    while left_on_ray():
        assert time.monotonic() < until, left_on_ray()
        time.sleep(0.1)
