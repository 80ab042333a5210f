"""``lengthwise dflash export``: what it writes, what it says, how it fails."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import save_native
from lengthwise.dflash.training.checkpoint import CheckpointStore
from support.dflash_models import tiny_drafter_config, tiny_qwen3


@pytest.fixture(scope="module")
def drafter():
    return Drafter(tiny_drafter_config(tiny_qwen3()), seed=4)


@pytest.fixture(scope="module")
def checkpoint(drafter, tmp_path_factory):
    """A checkpoint as training leaves it: fp32, nothing said about the target."""
    store = CheckpointStore(tmp_path_factory.mktemp("run"))
    return store.save(
        {"num_steps": 3}, {}, lambda folder: save_native(drafter, folder, dtype=torch.float32)
    )


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """The target's directory; the command reads its config alone, so there are no weights."""
    place = tmp_path_factory.mktemp("target")
    config = tiny_qwen3().config
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(place)
    return place


def run(*arguments):
    """Run the command; exit code, standard output and standard error."""
    found = CliRunner().invoke(app, ["dflash", "export", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def test_a_training_checkpoint_becomes_what_engines_load(checkpoint, drafter, target, tmp_path):
    # bfloat16 by default; the target's name and ids come from --target.
    code, out, err = run(checkpoint, "--output", tmp_path / "d", "--target", target)
    assert (code, err) == (0, f"wrote {tmp_path / 'd'}\n")
    assert "checked: names and shapes of tensors" in out
    assert f"vllm serve {target}" in out
    assert "--speculative-num-draft-tokens 4" in out
    config = json.loads((tmp_path / "d" / "config.json").read_text())
    assert config["lengthwise"]["target"] == str(target)
    assert config["eos_token_id"] == tiny_qwen3().config.eos_token_id
    stored = load_file(tmp_path / "d" / "model.safetensors")
    for name, tensor in drafter.state_dict().items():
        assert torch.equal(stored[name], tensor.bfloat16()), name


def test_json_says_what_was_written(checkpoint, target, tmp_path):
    # One object on standard output, nothing else; numbers counted from the files.
    place = tmp_path / "d"
    code, out, err = run(
        *(checkpoint, "-f", "speculators", "-o", place, "--target", target),
        *("--dtype", "float32", "--json"),
    )
    found = json.loads(out)
    assert (code, err) == (0, "")
    tensors = load_file(place / "model.safetensors")
    assert found["num_parameters"] == sum(tensor.numel() for tensor in tensors.values())
    assert found["num_bytes"] == sum(path.stat().st_size for path in place.iterdir())
    assert (found["format"], found["dtype"]) == ("speculators", "float32")
    assert (found["source_format"], found["source_dtype"]) == ("native", "float32")
    assert found["target_layer_ids"] == [1, 2]
    assert "fits the target" in found["checks"]
    assert set(found["serve"]) == {"vllm"}


def test_one_format_becomes_the_other_and_back_without_a_change(checkpoint, target, tmp_path):
    # The second and third conversion know the target from the files.
    first, second, third = (tmp_path / name for name in ("1", "2", "3"))
    assert run(checkpoint, "-o", first, "--target", target)[0] == 0
    assert run(first, "-f", "speculators", "-o", second)[0] == 0
    assert run(second, "-f", "native", "-o", third)[0] == 0
    for name in ("config.json", "model.safetensors"):
        assert (first / name).read_bytes() == (third / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-f", "speculators"], "give the target's directory or hub name (--target)"),
        (["--target", "{none}"], "its config cannot be read"),
        (["--target", "{other}"], "another target's drafter"),
        (["-o", "{full}"], "is there already and not empty"),
    ],
)
def test_a_wrong_use_exits_with_2_and_writes_nothing(
    checkpoint, target, tmp_path, options, message
):
    # One line says what is wrong; the output directory must not appear.
    other = tmp_path / "other"
    tiny_qwen3(num_layers=7).config.save_pretrained(other)
    places = {"none": tmp_path / "none", "other": other, "full": target}
    filled = [option.format(**places) for option in options]
    code, out, err = run(checkpoint, "-o", tmp_path / "d", *filled)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "d").exists()


def test_a_directory_without_a_drafter_is_named(tmp_path):
    # An empty directory and none at all.
    code, _, err = run(tmp_path, "-o", tmp_path / "d")
    assert (code, err) == (
        2,
        f"error: {tmp_path} has no config.json, so it is no drafter's directory\n",
    )
    code, _, err = run(tmp_path / "x", "-o", tmp_path / "d")
    assert code == 2
    assert "is no directory with a drafter" in err
