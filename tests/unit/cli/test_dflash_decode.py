"""``lengthwise dflash generate`` and ``evaluate`` from files to tables."""

import importlib
import json

import pytest
import torch
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.dflash.decoding import greedy
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import save_native
from lengthwise.dflash.target import Target
from support.dflash_chat import CHARACTERS, char_tokenizer, encode
from support.dflash_models import EOS_TOKEN, tiny_drafter_config, tiny_llama

ASKED = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Directories of a target with a chat template, one without, and a drafter for both."""
    root = tmp_path_factory.mktemp("models")
    model = tiny_llama()
    for name, template in (("chat", {}), ("bare", {"template": None})):
        model.save_pretrained(root / name)
        char_tokenizer(**template).save_pretrained(root / name)
    drafter = Drafter(tiny_drafter_config(model), seed=1)
    save_native(drafter, root / "drafter", model.config, torch.float32)
    rows = [
        {"task": "a", "prompt": "hello", "response": "never read"},
        {"task": "b", "messages": [{"role": "user", "content": "abc"}]},
        {"task": "b", "input_ids": [1, 2, 3, 4, 5], "loss_mask": [0, 0, 0, 1, 1]},
    ]
    (root / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def _run(files, command, *arguments, target="chat"):
    models = ["--target", str(files / target), "--drafter", str(files / "drafter")]
    return CliRunner().invoke(app, ["dflash", command, *models, *map(str, arguments)])


def _expected(prompt_ids, max_new_tokens):
    return greedy(Target(tiny_llama()), prompt_ids, max_new_tokens, [EOS_TOKEN]).token_ids


def test_generate_gives_the_targets_own_text_after_the_chat_template(files):
    # The template's text is written out by hand, and decoded by the target alone.
    found = _run(files, "generate", "--prompt", "hello", "--max-new-tokens", 12, "--json")
    assert found.exit_code == 0, found.output
    (one,) = json.loads(found.stdout)["generations"]
    assert tuple(one["token_ids"]) == _expected(encode(ASKED), 12)
    assert one["prompt"] == "hello"
    assert sum(one["num_accepted"]) + one["num_verifications"] + 1 == one["num_tokens"]
    characters = [CHARACTERS[token] for token in one["token_ids"] if token < EOS_TOKEN]
    assert one["text"] == "".join(characters)


def test_generate_prints_text_on_standard_output_and_figures_on_standard_error(files):
    # A pipe gets the text alone: no colours, no figures.
    plain = ["--prompt", "hello", "--prompt", "abc", "-n", 8, "--plain", "--ignore-stop"]
    found = _run(files, "generate", *plain)
    texts = [
        "".join(CHARACTERS[token] for token in _ids(prompt, 8) if token < EOS_TOKEN)
        for prompt in ("hello", "abc")
    ]
    assert found.stdout == "".join(f"{text}\n" for text in texts)
    assert "tokens per verification" in found.stderr
    quiet = _run(files, "generate", *plain, "--quiet")
    assert quiet.stdout == found.stdout
    assert "verification" not in quiet.stderr


def _ids(prompt, max_new_tokens):
    return greedy(Target(tiny_llama()), encode(prompt), max_new_tokens).token_ids


def test_a_tokenizer_without_a_template_takes_prompts_as_they_are(files):
    # And says so, since a chat model would answer worse this way.
    found = _run(files, "generate", "--prompt", "abc", "-n", 5, "--json", target="bare")
    (one,) = json.loads(found.stdout)["generations"]
    assert tuple(one["token_ids"]) == _expected(encode("abc"), 5)
    assert "no chat template" in found.stderr


def test_stop_tokens_can_be_named(files):
    # The third token of the plain output, named as the stop token, ends it there at the latest.
    truth = _ids("abc", 12)
    stop = truth[2]
    arguments = ["--prompt", "abc", "--plain", "-n", 12, "--stop-token-id", stop, "--json"]
    (one,) = json.loads(_run(files, "generate", *arguments).stdout)["generations"]
    assert tuple(one["token_ids"]) == truth[: truth.index(stop) + 1]
    assert one["finish_reason"] == "stop"


def test_sampled_text_repeats_with_its_seed(files):
    # Prompt number i draws from seed + i: the second of seed 4 is the first of seed 5.
    asked = ["--temperature", 1.5, "-n", 12, "--plain", "--ignore-stop", "--json"]
    pair = _run(files, "generate", "-p", "abc", "-p", "abc", "--seed", 4, *asked)
    alone = _run(files, "generate", "-p", "abc", "--seed", 5, *asked)
    first, second = json.loads(pair.stdout)["generations"]
    (again,) = json.loads(alone.stdout)["generations"]
    assert second["token_ids"] == again["token_ids"] != first["token_ids"]


def test_evaluate_reports_by_task_and_writes_the_same_figures(files, tmp_path):
    # Three rows of three forms: a prompt, messages, and prepared samples cut before the answer.
    output = tmp_path / "results.json"
    prompts = files / "prompts.jsonl"
    arguments = ["--prompts", prompts, "-n", 8, "--output", output, "--json"]
    found = _run(files, "evaluate", *arguments)
    assert found.exit_code == 0, found.output
    about = json.loads(found.stdout)
    said = {"format": "lengthwise drafter evaluation", "version": 1}
    assert json.loads(output.read_text()) == {**said, **about}
    assert {name: task["num_prompts"] for name, task in about["tasks"].items()} == {"a": 1, "b": 2}
    assert about["num_mismatches"] == 0
    assert sum(about["histogram"]) == about["num_verifications"]
    assert about["num_accepted"] == about["tokens_per_verify"] - 1
    assert about["dtype"] == "float32"
    expected = [encode(ASKED), encode(ASKED.replace("hello", "abc")), [1, 2, 3]]
    assert about["num_tokens"] == sum(len(_expected(ids, 8)) for ids in expected)


def test_evaluate_shows_tables(files):
    # Each task has its line, and the histogram a line for each number accepted.
    found = _run(files, "evaluate", "--prompts", files / "prompts.jsonl", "-n", 8)
    assert found.exit_code == 0, found.output
    for words in ("tokens per verify", "speed-up", "mismatches", "num_accepted", "█"):
        assert words in found.stdout
    limited = _run(files, "evaluate", "--prompts", files / "prompts.jsonl", "--limit", 1, "--json")
    assert json.loads(limited.stdout)["num_given"] == 1


def test_a_mismatch_in_float32_is_a_failed_run(files, monkeypatch):
    # A loop that emits what was drafted: the results are printed, then exit code 1.
    loop = importlib.import_module("lengthwise.dflash.decoding.speculate")
    monkeypatch.setattr(loop, "verify_greedy", lambda logits, drafted: [*drafted.tolist(), 3])
    found = _run(files, "evaluate", "--prompts", files / "prompts.jsonl", "-n", 8)
    assert found.exit_code == 1
    assert "first difference" in found.stdout
    assert "outputs differ from the target's own in float32" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate"], "there is no prompt"),
        (["generate", "--prompt", ""], "has no tokens"),
        (["generate", "--prompt", "a", "--top-p", 0], "top_p"),
        (["evaluate", "--prompts", "missing.jsonl"], "missing.jsonl"),
        (["evaluate", "--prompts", "{bad}"], "line 2"),
    ],
)
def test_wrong_use_is_one_message_and_exit_code_2(files, tmp_path, arguments, words):
    # No traceback; the message names the option, or the file and the line.
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "a"}\n{"answer": "b"}\n')
    given = [str(word).replace("{bad}", str(bad)) for word in arguments]
    found = _run(files, *given, "--plain")
    assert found.exit_code == 2
    assert words in found.stderr
    assert found.stderr.count("\n") < 4
    assert "Traceback" not in found.output
