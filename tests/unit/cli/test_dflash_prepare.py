"""``lengthwise dflash prepare``: from the shell, with real signals."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.cli.dflash import prepare as subject
from lengthwise.errors import ConfigError
from support import dflash_models
from support.dflash_chat import CHATML, char_tokenizer, read_samples
from support.dflash_server import completion, serving

ROWS = [{"prompt": f"hello number {number}", "task": f"t{number % 2}"} for number in range(8)]
MAIN = "from lengthwise.cli.app import main; main()"


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A checkpoint of a tiny target with its tokenizer."""
    directory = tmp_path_factory.mktemp("target")
    dflash_models.tiny_llama().save_pretrained(directory)
    char_tokenizer(CHATML).save_pretrained(directory)
    return str(directory)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, ["dflash", "prepare", *map(str, arguments)])


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_target_answers_and_scan_reads_what_was_made(source, target, tmp_path):
    out = tmp_path / "out"
    arguments = (source, "--target", target, "-o", out, "--max-new-tokens", 5, "--quiet")
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    card = json.loads(done.stdout)
    samples = read_samples(out)
    assert card["counts"]["samples"] == len(samples) == 8
    assert card["generated_tokens"] == sum(sample["num_loss_tokens"] for sample in samples)
    assert [sample["task"] for sample in samples] == ["t0", "t1"] * 4
    scanned = CliRunner().invoke(app, ["scan", str(out), "--column", "seq_len", "--json"])
    assert scanned.exit_code == 0, scanned.output
    assert json.loads(scanned.stdout)["num_samples"] == 8
    # The same command again finds everything done and shows it as a table.
    again = run(*arguments)
    assert again.exit_code == 0
    assert "of them in earlier runs" in again.stdout
    assert contents(out)["card.json"] == (out / "card.json").read_bytes()


def test_given_answers_need_no_weights(source, tmp_path, target):
    # A directory with a tokenizer alone is enough.
    only = tmp_path / "tokenizer"
    char_tokenizer(CHATML).save_pretrained(only)
    chats = tmp_path / "chats.jsonl"
    chats.write_text(json.dumps({"prompt": "hi", "response": "yes"}) + "\n")
    done = run(chats, "--keep-responses", "--target", only, "-o", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"]["loss_tokens"] == 4  # "yes" and its end


def start(*arguments):
    command = [sys.executable, "-c", MAIN, "dflash", "prepare", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_stopped_by_a_signal_goes_on_and_ends_the_same(how, source, target, tmp_path):
    # Two rows a shard, one request at a time, and a server that falls silent at the sixth: the
    # signal comes when exactly two shards are finished and the third is half done.
    stuck, over = threading.Event(), threading.Event()

    def silent(number, _body):
        if number == 5:
            stuck.set()
            over.wait(300)
        return 200, completion("yes")

    def arguments(served, out):
        return (
            *(source, "--target", target, "-o", out, "--server", served.url, "--shard-rows", 2),
            *("--concurrency", 1, "--quiet"),
        )

    with serving(silent) as served:
        process = start(*arguments(served, tmp_path / "out"))
        try:
            assert stuck.wait(300), process.communicate(timeout=10)
            process.send_signal(how)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
            over.set()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command continues" in errors
        assert "Traceback" not in errors
    else:
        assert process.returncode == -signal.SIGKILL
    names = ["samples-00000.parquet", "samples-00001.parquet"]
    assert sorted(path.name for path in (tmp_path / "out").glob("samples*")) == names
    with serving(lambda *_: (200, completion("yes"))) as served:
        resumed = run(*arguments(served, tmp_path / "out"), "--json")
        assert len(served.requests) == 4  # rows 5 to 8; no finished one is asked again
        whole = run(*arguments(served, tmp_path / "whole"), "--json")
    assert (resumed.exit_code, whole.exit_code) == (0, 0)
    assert json.loads(resumed.stdout)["rows_before"] == 4
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_changed_setting_is_refused_with_exit_2(source, target, tmp_path):
    with serving(lambda *_: (200, completion("yes"))) as served:
        first = (source, "--target", target, "-o", tmp_path / "out", "--server", served.url)
        assert run(*first).exit_code == 0
        done = run(*first, "--temperature", 0.5)
    assert done.exit_code == 2
    assert "temperature was 0.0 and is 0.5" in done.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--chat-template-kwargs", "enable_thinking"), "JSON object or name=value"),
        (("--chat-template-kwargs", "{"), "is no JSON"),
        (("--api-key-env", "NO_SUCH_KEY", "--server", "http://x/v1"), "NO_SUCH_KEY is not set"),
        (("--server", "nonsense"), "must be a URL"),
        (("--plain", "--system-prompt", "x"), "plain means"),
        (("--chat-template", "/none.jinja"), "No such file"),
        (("--top-p", "2"), "top_p must be above 0"),
    ],
)
def test_wrong_use_is_one_message_and_exit_2(more, words, source, target, tmp_path):
    done = run(source, "--target", target, "-o", tmp_path / "out", *more)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


def test_dropped_prompts_are_warned_about(source, target, tmp_path):
    with serving(lambda *_: (400, {"error": "no"})) as served:
        done = run(source, "--target", target, "-o", tmp_path / "out", "--server", served.url)
    assert done.exit_code == 0
    assert "8 prompts have no answer in the samples (refused with 400: 8)" in done.stderr
    assert "no sample was made" in done.stderr


def test_unfinished_answers_are_warned_about(source, target, tmp_path):
    with serving(lambda *_: (200, completion("yes", "length"))) as served:
        done = run(source, "--target", target, "-o", tmp_path / "out", "--server", served.url)
    assert "100.0 % of the answers did not end within --max-new-tokens 2,048" in done.stderr


def test_variables_of_the_template_are_json_objects_or_pairs():
    given = ["enable_thinking=false", "mode=fast", '{"n": 3, "list": [1]}', "empty="]
    assert subject._kwargs(given) == {
        "enable_thinking": False,
        "mode": "fast",
        "n": 3,
        "list": [1],
        "empty": "",
    }
    with pytest.raises(ConfigError, match="name=value"):
        subject._kwargs(["a b=1"])


def test_progress_tells_speed_and_time_left(monkeypatch):
    # 100 seconds for 10 of 40 rows and 500 tokens: 5 tokens/s, 300 seconds left.
    now = [1000.0]
    monkeypatch.setattr(subject.time, "monotonic", lambda: now[0])
    shown = []
    show = subject._speed(lambda *what: shown.append(what))
    show(2, 42, 0)
    now[0] += 100
    show(12, 42, 500)
    assert shown[1] == (12, 42, "rows, 5 tokens/s, 5 min left")
    show(12, None, 500)
    assert shown[2] == (12, None, "rows, 5 tokens/s")
