"""``lengthwise calibrate``: a tiny model is measured for real, and wrong use is refused first."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lengthwise.calibrate import read_calibration
from lengthwise.calibrate.budget import BucketBudget, Budget, Probe
from lengthwise.cli.app import app
from lengthwise.cli.calibrate_view import doubts_of, print_calibration
from support.calibrations import SHAPES, FakeMemory, FakeWatch, generator, seconds_of

CONFIG = {
    "model_type": "qwen3",
    "vocab_size": 50,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "max_position_embeddings": 128,
}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    np.save(tmp_path / "lengths.npy", np.arange(200) % 60 + 4)
    return tmp_path


def invoke(model, *arguments):
    source = [str(model / "lengths.npy"), "--max-tokens", "128"]
    named = ["--model-class", "Qwen3Model", "--model-config", str(model)]
    return CliRunner().invoke(app, ["calibrate", *source, *named, *arguments])


def test_a_model_is_measured_and_the_file_is_what_json_says(model):
    # 6 shapes, each timed three times; the object on standard output is the file's content and
    # two keys more. How long a step took is the machine's affair.
    path = model / "cost.json"
    done = invoke(model, "--num-shapes", "6", "--repeats", "3", "--json", "--output", str(path))
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert len(shown["measurements"]) == 18
    assert {(n, m) for n, m, _, _ in shown["measurements"]} == {
        (n, m) for n, m in zip(shown["fit"]["batch_size"], shown["fit"]["longest"], strict=True)
    }
    assert (shown["what"], shown["device"], shown["dtype"]) == (
        "forward_backward",
        "cpu",
        "float32",
    )
    assert shown["budget"] is None
    kept = read_calibration(path).to_dict()
    assert {name: shown[name] for name in kept} == json.loads(json.dumps(kept))


def test_the_terminal_shows_every_shape_and_the_error_bar(model):
    # One row a shape, with what the fit says of it.
    done = invoke(model, "--num-shapes", "5", "--repeats", "2", "--forward-only", "-q")
    assert done.exit_code == 0, done.output
    assert "forward in float32 on cpu" in done.stdout
    for words in ("padded tokens", "residual", "unseen", "One batch: ±", "seconds = "):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--find-budget",), "--find-budget needs --device cuda"),
        (("--device", "tpu"), "timed on 'cpu' and 'cuda'"),
        (("--model-class", "Qwen3Nothing"), "no model class"),
        (("--model-config", "nowhere"), "neither a config.json"),
        (("--num-shapes", "3"), "num-shapes"),
    ],
)
def test_wrong_use_is_exit_code_2_with_one_message(model, arguments, words):
    # Before anything is measured, and without a traceback.
    done = invoke(model, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.output


def calibrated(noise, slow=0.0):
    from lengthwise.calibrate import calibrate

    draw = generator(1)

    def seconds(n, m):
        factor = 1 + noise * draw.standard_normal()
        return seconds_of((0.01, 1e-5, 2e-9), n, m) * factor * (3 if draw.random() < slow else 1)

    clock = FakeWatch(seconds, peak=lambda n, m: 10**9 + 100 * n * m)
    return calibrate(clock.step, SHAPES, stopwatch=clock)


def test_doubts_are_told_where_there_are_some():
    # 1 % noise is fine; 20 % is not; and one step in twelve of three times the length adds 1/6.
    assert doubts_of(calibrated(0.01)) == []
    assert any("something else uses this machine" in doubt for doubt in doubts_of(calibrated(0.2)))
    assert any("rare slow steps" in doubt for doubt in doubts_of(calibrated(0.01, 1 / 12)))


def test_a_budget_is_shown_with_what_limits_each_bucket(capsys):
    # Bucket 100 ended where the search did, bucket 200 where memory did, after one failure.
    budget = Budget(
        1_800,
        (BucketBudget(100, 32, 32, limited=False), BucketBudget(200, 9, 10, limited=True)),
        (Probe(1, 100, True, 5), Probe(11, 200, False, None)),
        0.1,
    )
    print_calibration(calibrated(0.01), budget)
    shown = capsys.readouterr().out
    assert "peak bytes <= 1e+09 + 100 * n*m" in shown
    assert "the search's end" in shown
    assert "Largest safe --max-tokens: 1,800 (10% taken off; 2 steps tried, 1 ran out" in shown


def test_the_budget_is_searched_at_the_longest_of_each_bucket(monkeypatch):
    # The device is imitated: 2 GB, of which the step takes 1 GB and 100 bytes a token, so 10
    # million tokens fit; 64 times the given budget is the most that is tried. Three lengths in
    # three buckets, the last at the longest sample.
    import lengthwise.calibrate as front
    from lengthwise import BatchLimits, LengthHistogram
    from lengthwise.cli.calibrate import _find_budget

    memory = FakeMemory(2 * 10**9, lambda n, m: 10**9 + 100 * n * m)
    monkeypatch.setattr(front, "stopwatch_for", lambda _device: memory)
    monkeypatch.setattr(front, "device_bytes", lambda _device: 2 * 10**9)
    hist = LengthHistogram.from_lengths([100] * 50 + [500] * 50 + [900] * 50)
    limits = BatchLimits(max_tokens=1_000_000)
    found = _find_budget(memory.step, calibrated(0.01), hist, limits, 3, quiet=True)
    assert [item.longest for item in found.buckets] == [100, 500, 900]
    assert 0.8 * 0.9 * 10**7 < found.max_tokens < 0.9 * 10**7
