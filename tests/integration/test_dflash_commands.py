"""From prompts to an exported drafter through the real commands.

Preparing and training run in processes of their own, as signals and streams need; what follows
runs in this one, which has its libraries loaded already.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import yaml
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.dflash.formats.load import load_native
from lengthwise.dflash.training.checkpoint import read_checkpoint
from support.dflash_chat import char_tokenizer
from support.dflash_models import VOCAB, tiny_qwen3
from support.dflash_runs import read_records
from support.held_command import start_held

MASK = VOCAB
"""The target's table has more rows than the tokenizer has tokens, so no text contains this one."""
CONFIG = {
    "output_dir": "run",
    "target": {"model": "target", "dtype": "float32"},
    "drafter": {"mask_token_id": MASK, "num_hidden_layers": 2, "block_size": 4},
    "data": {"train": ["prepared"], "num_held_out": 4},
    "epochs": 2,
    "device": "cpu",
    "batching": {"max_tokens": 256, "max_batch_size": 8},
    "remix": {"pool_batches": 3, "mixed_batches": 2},
    "step": {
        "anchors_per_step": 32,
        "max_anchors": 8,
        "max_anchors_per_batch": 24,
        "shape_multiple": 8,
    },
    "evaluation": {"num_prompts": 2, "max_new_tokens": 8},
    "checkpoint": {"every_steps": 3, "keep": 2},
    "logging": {"every_steps": 1},
    "optimizer": {"learning_rate": "3e-3"},
}
MAIN = "from lengthwise.cli.app import main; main()"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a target, prompts and a config; commands run in it, in this order."""
    folder = tmp_path_factory.mktemp("place")
    torch.set_num_threads(1)
    tiny_qwen3(vocab_size=VOCAB + 8).save_pretrained(folder / "target")
    char_tokenizer().save_pretrained(folder / "target")
    rows = [
        {"task": f"t{number % 2}", "prompt": "ask " * (1 + number % 6) + str(number)}
        for number in range(44)
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "prompts.jsonl").write_text("".join(lines[:40]))
    (folder / "held_out.jsonl").write_text("".join(lines[40:]))
    (folder / "run.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


def start(folder, *arguments):
    """A command as a process of its own, as a shell would start it."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )


def lengthwise(folder, *arguments, code=0):
    """The output of a finished command, as (standard output, standard error)."""
    process = start(folder, *arguments)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    return out, err


@pytest.fixture
def here(place, monkeypatch):
    """Runs a command in this process, in the same directory; its JSON object."""
    monkeypatch.chdir(place)

    def run(*arguments):
        done = CliRunner().invoke(app, ["dflash", *map(str, arguments), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def prepared(place):
    """What `prepare` said."""
    out, _ = lengthwise(
        place, "dflash", "prepare", "prompts.jsonl", "--target", "target", "-o", "prepared",
        "--max-new-tokens", 16, "--json", "--quiet",
    )  # fmt: skip
    return json.loads(out)


@pytest.fixture(scope="module")
def trained(place, prepared):
    """What `train` said of a run from beginning to end."""
    out, err = lengthwise(place, "dflash", "train", "run.yaml", "--json")
    return json.loads(out), err


@pytest.mark.slow
def test_what_was_prepared_has_lengths_that_scan_reads(place, prepared):
    assert prepared["counts"]["samples"] == 40
    out, _ = lengthwise(place, "scan", "prepared", "--column", "seq_len", "--json")
    scanned = json.loads(out)
    assert scanned["num_samples"] == 40
    assert scanned["num_tokens"] == prepared["counts"]["tokens"]


@pytest.mark.slow
def test_a_run_trains_a_drafter_that_decodes_without_a_changed_token(place, here, trained):
    summary, err = trained
    assert summary["num_steps"] == summary["total_steps"] >= 8
    assert (summary["num_samples"], summary["num_held_out"]) == (36, 4)
    assert summary["eval_mismatches"] == 0
    # A pipe gets lines, not bars: neither ours nor those of a library.
    assert "Loading weights" not in err
    assert "\r" not in err
    for words in ("step 1 of", "saved run/checkpoints/step-0000000", "held out: "):
        assert words in err

    asked = ("--target", "target", "--drafter", summary["drafter"], "--max-new-tokens", 12)
    (drafted,) = here("generate", *asked, "--prompt", "ask 99")["generations"]
    assert drafted["num_tokens"] > 0
    found = here("evaluate", *asked, "--prompts", "held_out.jsonl", "--output", "results.json")
    stamp = {"format": "lengthwise drafter evaluation", "version": 1}
    assert stamp | found == json.loads((place / "results.json").read_text())
    assert found["num_mismatches"] == 0
    counts = {name: task["num_prompts"] for name, task in found["tasks"].items()}
    assert counts == {"t0": 2, "t1": 2}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["native", "speculators"])
def test_a_checkpoint_is_exported_and_the_export_drafts_as_it(form, here, trained):
    summary, _ = trained
    about = here(
        "export", summary["checkpoint"], "-o", form, "--format", form, "--target", "target",
        "--dtype", "float32",
    )  # fmt: skip
    assert about["format"] == form
    assert about["checks"]
    decode = ("evaluate", "--target", "target", "--prompts", "held_out.jsonl", "-n", 12)
    found = [here(*decode, "--drafter", drafter) for drafter in (summary["drafter"], form)]
    assert found[0]["histogram"] == found[1]["histogram"]
    assert [one["num_mismatches"] for one in found] == [0, 0]


@pytest.mark.slow
def test_an_interrupted_run_exits_with_130_and_ends_as_if_nothing_had_happened(place, trained):
    """A real SIGINT after the first saved checkpoint; then the same command again."""
    whole, _ = trained
    command = ("dflash", "train", "run.yaml", "--set", "output_dir=broken", "--json")
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start_held(command, 4, place / "go", cwd=place, **streams)
    try:
        for line in process.stderr:
            if "saved" in line:
                process.send_signal(signal.SIGINT)
                break
        (place / "go").touch()
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    first = json.loads(out)
    assert first["interrupted"]
    assert first["drafter"] is None
    assert 3 <= first["num_steps"] <= 4 < whole["total_steps"]
    saved = read_checkpoint(place / first["checkpoint"])
    assert saved.num_steps == first["num_steps"]

    out, err = lengthwise(place, *command)
    second = json.loads(out)
    assert f"going on from {first['checkpoint']}: {first['num_steps']} of " in err
    assert not second["interrupted"]
    for name in ("num_steps", "loss", "streak", "eval_loss", "eval_tokens_per_verify"):
        assert second[name] == whole[name], name
    assert losses(place / "broken") == losses(place / "run")
    weights = [load_native(place / run["drafter"]).state_dict() for run in (whole, second)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def losses(output):
    return [record["loss"] for record in read_records(output) if "loss" in record]


@pytest.mark.slow
def test_a_drafter_goes_on_learning_from_an_export(place, here, trained):
    # The config's own architecture fields must go; the drafter brings them.
    summary, _ = trained
    config = {**CONFIG, "drafter": {"init_from": summary["drafter"]}, "output_dir": "more"}
    (place / "more.yaml").write_text(yaml.safe_dump({**config, "epochs": 1}))
    more = here("train", "more.yaml", "--quiet")
    assert more["num_parameters"] == summary["num_parameters"]
    # It begins better than the run began that it goes on from.
    assert losses(place / "more")[0] < losses(place / "run")[0]


@pytest.mark.slow
def test_wrong_use_exits_with_2_before_anything_is_loaded(place):
    out, err = lengthwise(place, "dflash", "train", "run.yaml", "--set", "epochs=0", code=2)
    assert out == ""
    assert err == (
        "error: run.yaml: 1 problem\n  epochs: must be greater than or equal to 1; got 0\n"
    )
