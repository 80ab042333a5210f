"""``lengthwise dflash train``: streams, exit codes, and what a terminal shows."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from lengthwise.cli import app as shell
from lengthwise.cli.dflash import train_view
from lengthwise.dflash.formats.load import load_native
from lengthwise.dflash.training.config import parse_train_config
from lengthwise.dflash.training.describe import describe
from lengthwise.dflash.training.source import TargetRunner
from lengthwise.errors import LengthwiseWarning
from support.dflash_runs import read_records, small_config, small_run_folder

KEYS = {
    "num_steps", "total_steps", "interrupted", "output_dir", "checkpoint", "drafter",
    "num_samples", "num_tokens", "num_held_out", "left_out", "num_parameters", "target_layer_ids",
    "efficiency", "seconds", "num_skipped", "loss", "accuracy", "streak", "tokens_per_second",
    "eval_tokens_per_verify", "eval_num_accepted", "eval_standard_error", "eval_streak",
    "eval_accuracy", "eval_loss", "eval_speedup", "eval_mismatches", "eval_num_prompts",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """One finished run: its config, its output directory, what the command printed."""
    place = tmp_path_factory.mktemp("trained")
    path = write_config(folder, place / "out", place / "run.yaml")
    return path, place / "out", run(path, "--json")


def write_config(folder, output, path, **changes):
    path.write_text(describe(small_config(folder, output, **changes)))
    return path


def run(*arguments):
    return CliRunner().invoke(shell.app, ["dflash", "train", *map(str, arguments)])


def test_json_is_one_object_with_every_key_and_progress_is_on_standard_error(trained):
    _, output, done = trained
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary.keys() >= KEYS
    assert summary["num_steps"] == summary["total_steps"] > 0
    # Forty samples, two of no use, three held out.
    assert (summary["num_samples"], summary["num_held_out"]) == (35, 3)
    assert summary["left_out"] == {"no two supervised tokens in a row": 2}
    assert summary["eval_mismatches"] == 0
    assert summary["eval_num_prompts"] == 2
    assert summary["target_layer_ids"] == [1, 3]
    assert load_native(output / "drafter").config.block_size == 4
    for words in ("loading target", "target ", "drafter ", "left out", "batches", "step 1 of"):
        assert words in done.stderr


def test_the_figures_are_those_of_the_metrics_file(trained):
    _, output, done = trained
    summary = json.loads(done.stdout)
    records = read_records(output)
    last = [record for record in records if "loss" in record][-1]
    evaluated = [record for record in records if "eval_loss" in record][-1]
    assert summary["loss"] == last["loss"]
    assert summary["eval_tokens_per_verify"] == evaluated["eval_tokens_per_verify"]
    assert summary["eval_loss"] == evaluated["eval_loss"]


def test_a_finished_run_is_left_as_it_is(trained):
    path, output, done = trained
    before = len(read_records(output))
    again = run(path)
    assert again.exit_code == 0, again.output
    total = json.loads(done.stdout)["total_steps"]
    assert f"{total} of {total} steps are done" in again.stderr
    assert "trained" in again.stdout
    assert f"drafter: {output / 'drafter'}" in again.stdout
    assert len(read_records(output)) == before


def test_a_table_says_what_counts_first(folder, tmp_path):
    path = write_config(folder, tmp_path / "out", tmp_path / "run.yaml")
    done = run(path, "--quiet", "--set", "max_steps=1")
    assert done.exit_code == 0, done.output
    # A library's bars look at the environment when they are imported; here they were before.
    ours = [line for line in done.stderr.splitlines() if "Loading weights" not in line]
    assert "".join(ours) == ""
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert lines[0].startswith("trained")
    assert lines[2].startswith("held out: tokens per verification")
    assert "optimiser steps" in done.stdout
    assert "1 of 1" in done.stdout


def test_from_scratch_refuses_where_checkpoints_are(trained):
    path, _, _ = trained
    refused = run(path, "--from-scratch")
    assert refused.exit_code == 2
    assert "holds checkpoints of an earlier run" in refused.stderr
    assert refused.stdout == ""


def test_a_setting_that_decides_the_result_cannot_change_in_a_run(trained):
    path, _, _ = trained
    refused = run(path, "--set", "optimizer.learning_rate=1e-5")
    assert refused.exit_code == 2
    assert "optimizer.learning_rate: 0.003 -> 1e-05" in refused.stderr
    assert "Traceback" not in refused.output


def test_a_harmless_setting_may_change_and_is_named(trained):
    path, _, _ = trained
    done = run(path, "--set", "checkpoint.keep=1", "--json")
    assert done.exit_code == 0, done.output
    assert "changed: checkpoint.keep: 2 -> 1" in done.stderr
    json.loads(done.stdout)


def test_a_run_that_fails_exits_with_1_and_says_why(folder, tmp_path, monkeypatch):
    """Features that are not finite, from the first batch on: no step is made, the run gives up."""
    plain_run = TargetRunner.run

    def spoilt(self, sample_ids):
        samples = plain_run(self, sample_ids)
        return [replace(sample, features=sample.features * math.inf) for sample in samples]

    monkeypatch.setattr(TargetRunner, "run", spoilt)
    changes = {"epochs": 20, "evaluation": {"num_prompts": 0}}
    failed = run(write_config(folder, tmp_path / "out", tmp_path / "run.yaml", **changes))
    assert failed.exit_code == 1, failed.output
    assert "error: the loss was not finite in 10 steps in a row" in failed.stderr
    assert "warning: step 1 skipped" in failed.stderr
    assert failed.stdout == ""
    assert "Traceback" not in failed.output


def test_the_config_that_runs_can_be_printed(folder, tmp_path):
    path = write_config(folder, tmp_path / "out", tmp_path / "run.yaml")
    done = run(path, "--set", "epochs=7", "--set", "optimizer.learning_rate=6e-4", "--print-config")
    assert done.exit_code == 0, done.output
    printed = parse_train_config(yaml.safe_load(done.stdout))
    assert (printed.epochs, printed.optimizer.learning_rate) == (7, 6e-4)
    assert not (tmp_path / "out").exists()


def test_without_a_file_every_default_is_printed():
    done = run("--print-config")
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["optimizer"]["learning_rate"] == 6e-4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a config file"),
        (("missing.yaml",), "missing.yaml: No such file"),
        (("{run}", "--set", "epochs=0"), "epochs: must be greater than or equal to 1; got 0"),
        (("{run}", "--set", "target.model=/none"), "/none"),
        (("{run}", "--set", "data.train=[/none]"), "/none"),
        (("{run}", "--set", "drafter.mask_token_id=999"), "mask_token_id"),
        (("{run}", "--set", "device=cuda:77"), "device"),
        (("{run}", "--set", "batching.max_tokens=20"), "batching.max_tokens is 20"),
        (("{run}", "--nonsense"), "--nonsense"),
    ],
)
def test_wrong_use_is_one_message_and_exit_2(arguments, says, folder, tmp_path):
    path = write_config(folder, tmp_path / "out", tmp_path / "run.yaml")
    done = run(*(str(argument).replace("{run}", str(path)) for argument in arguments))
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_help_of_the_group_is_quick_and_loads_nothing_heavy():
    """In a fresh interpreter, since this one has imported everything."""
    code = (
        "import sys\n"
        "sys.argv = ['lengthwise', 'dflash', '--help']\n"
        "from lengthwise.cli.app import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    print('exit', stop.code)\n"
        "heavy = {'numba', 'pyarrow', 'torch', 'transformers', 'huggingface_hub'}\n"
        "print('heavy', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert "exit 0" in done.stdout
    assert "heavy []" in done.stdout
    for name in shell.DFLASH_COMMANDS:
        assert name in done.stdout


@pytest.mark.parametrize("command", list(shell.DFLASH_COMMANDS))
def test_a_missing_extra_is_named_before_anything_runs(command, monkeypatch):
    monkeypatch.setattr(shell, "find_spec", lambda name: None if name == "transformers" else name)
    done = CliRunner().invoke(shell.app, ["dflash", command])
    assert done.exit_code == 2
    assert done.stderr == (
        "error: lengthwise dflash needs transformers: pip install 'lengthwise[dflash]'\n"
    )


class Terminal(io.StringIO):
    """Standard error as a terminal of some width; rich asks the environment for it."""

    def isatty(self):
        return True


@pytest.fixture
def view(monkeypatch, tmp_path):
    """Makes a view whose log keeps given records, on a terminal of a given width or on none."""

    def make(*, width=None, total=20_000, quiet=False):
        stream = Terminal() if width else io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        if width:
            monkeypatch.setenv("COLUMNS", str(width))
        log = SimpleNamespace(
            stepped=lambda *_: None, evaluated=lambda *_: None, saved=lambda *_: None,
            last={"loss": 10.1234, "streak": 12.25, "tokens_per_second": 123_456.0},
            last_evaluation={
                "eval_tokens_per_verify": 12.25, "eval_streak": 12.25, "eval_loss": 10.1234,
            },
        )  # fmt: skip
        return train_view.TrainView(total, log, quiet=quiet), stream

    return make


def position(num_steps):
    return SimpleNamespace(num_steps=num_steps)


STEPPED, SKIPPED = SimpleNamespace(outcome="stepped"), SimpleNamespace(outcome="skipped")


def plain(text):
    """What a terminal shows line by line, without the codes that move and colour."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))


@pytest.mark.parametrize(("width", "speed"), [(80, False), (100, True), (120, True)])
def test_the_live_line_fits_the_terminal(view, width, speed):
    # With numbers as long as they get: a line that is cut off would end in an ellipsis.
    shown, stream = view(width=width)
    with shown:
        shown._num_before = 0
        shown._began -= 3 * 86_400
        shown.stepped(position(10_000), STEPPED, None)
        shown._bar.refresh()
        shown.evaluated(position(10_000), None, None)
    lines = plain(stream.getvalue())
    assert max(map(len, lines)) <= width
    (live,) = {line for line in lines if "10,000/20,000" in line and "loss" in line}
    assert "loss 10.1234  streak 12.25" in live
    assert live.rstrip().endswith("left")
    assert ("123,456 tokens/s" in live) == speed
    assert "…" not in live
    assert any(
        line.startswith("step 10,000, held out: 12.25 tokens per verification") for line in lines
    )


def test_elsewhere_a_line_comes_every_ten_seconds(view, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(train_view.time, "monotonic", lambda: now[0])
    shown, stream = view(total=100)
    with shown:
        for step in range(1, 26):
            now[0] = float(step)
            shown.stepped(position(step), STEPPED, None)
    # A second a step: the first at once, then at 11 and 21 seconds; 89 and 79 steps are to go.
    figures = "loss 10.1234, streak 12.25, 123,456 tokens/s"
    assert stream.getvalue().splitlines() == [
        f"step 1 of 100: {figures}, 1 min 39 s left",
        f"step 11 of 100: {figures}, 1 min 29 s left",
        f"step 21 of 100: {figures}, 1 min 19 s left",
    ]


def test_time_left_goes_by_the_steps_of_this_process(view, monkeypatch):
    # Resumed at step 50: ten steps in ten seconds, forty to go.
    now = [0.0]
    monkeypatch.setattr(train_view.time, "monotonic", lambda: now[0])
    shown, _ = view(total=100)
    with shown:
        for step in range(51, 61):
            now[0] += 1.0
            shown.stepped(position(step), STEPPED, None)
        assert shown._left(60) == "40 s left"


def test_a_skipped_step_is_told_even_when_quiet(view):
    shown, stream = view(quiet=True)
    with shown:
        shown.stepped(position(1), STEPPED, None)
        shown.stepped(position(2), SKIPPED, None)
        shown.evaluated(position(2), None, None)
        shown.saved(position(2), "somewhere")
    assert shown.num_skipped == 1
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("warning: step 2 skipped")


def test_warnings_of_a_run_are_one_line_each(trained, tmp_path):
    """A damaged newest checkpoint: passed over with a warning, and the run goes on before it."""
    path, output, _ = trained
    copy = tmp_path / "out"
    shutil.copytree(output, copy)
    newest = max((copy / "checkpoints").iterdir())
    os.truncate(newest / "optimizer.pt", 10)
    done = run(path, "--set", f"output_dir={copy}", "--json")
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert "damaged: optimizer.pt has 10 bytes" in line
    assert LengthwiseWarning.__name__ not in done.stderr
