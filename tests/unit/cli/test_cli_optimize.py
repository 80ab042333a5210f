"""``lengthwise optimize``: its JSON, its file, its words and its errors."""

import json
import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.core.boundaries import evaluate_boundaries, optimize_boundaries
from lengthwise.core.cost import StepTime
from lengthwise.core.diversity import num_shapes
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.files.config_file import read_config
from lengthwise.predict import optimize_seconds

LENGTHS = [5 + i * i % 197 for i in range(400)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lengths.npy"
    np.save(path, np.array(LENGTHS))
    return path


def _optimize(*arguments):
    return CliRunner().invoke(app, ["optimize", *map(str, arguments)])


def _json(*arguments):
    result = _optimize(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_json_holds_what_the_python_function_returns(file):
    data = _json(file, "-t", 1000, "-b", 16, "-k", 3)
    best = optimize_boundaries(LengthHistogram.from_lengths(LENGTHS), BatchLimits(1000, 16), 3)
    expected = json.loads(json.dumps(best.to_dict()))
    assert {key: data[key] for key in expected} == expected
    assert set(data["baselines"]) == {"equal_count", "equal_tokens", "geometric", "powers_of_two"}
    assert data["limits"]["max_tokens"] == 1000
    assert data["num_samples"] == 400


def test_six_buckets_are_the_default(file):
    assert _json(file, "-t", 1000)["num_buckets"] == 6


def test_the_written_config_is_read_back_with_these_boundaries(file, tmp_path):
    """The keys that `lengthwise plan --config` reads; a flat file with one table."""
    output = tmp_path / "out" / "batching.toml"
    data = _json(file, "-t", 1000, "-b", 16, "-k", 3, "--output", output)
    assert tomllib.loads(output.read_text()) == {
        "format": "lengthwise batching config",
        "version": 1,
        "strategy": "bucketed",
        "boundaries": data["boundaries"],
        "seed": 0,
        "limits": {
            "max_tokens": 1000,
            "max_batch_size": 16,
            "pad_to_multiple_of": 1,
            "batch_size_multiple_of": 1,
        },
    }
    assert list(read_config(output).boundaries) == data["boundaries"]


def test_a_config_keeps_padding_to_the_boundary(file, tmp_path):
    output = tmp_path / "batching.toml"
    assert _optimize(file, "-t", 1000, "--pad-to-boundary", "-o", output).exit_code == 0
    assert read_config(output).pad_to_boundary is True


def test_a_curve_has_every_number_and_recommends_one(file):
    data = _json(file, "-t", 1000, "--curve", "-k", 8)
    assert [entry["wanted"] for entry in data["curve"]] == list(range(1, 9))
    assert data["boundaries"] == data["curve"][data["recommended"] - 1]["boundaries"]
    assert data["reason"].startswith(f"K = {data['recommended']} keeps")


def test_the_words_say_what_optimal_means(file):
    text = _optimize(file, "-t", 1000, "-k", 3, "--boundaries", "0,50,100,300").stdout
    flat = " ".join(text.split())
    assert "Optimal means the fewest padded tokens with at most 3 buckets" in flat
    assert "possible edges were weighed" in flat or "halving the spacing" in flat
    assert "0 50 100 202" in flat or "0 50 100 300" in flat
    for name in ("equal count", "equal tokens", "geometric", "powers of two", "given"):
        assert name in flat


def test_the_curve_is_a_table_with_the_recommended_number_marked(file):
    text = _optimize(file, "-t", 1000, "--curve", "-k", 8).stdout
    assert " * " in text
    assert "Recommended: K = " in text


def test_seconds_take_the_coefficients_of_a_steps_time(file):
    options = ("--objective", "seconds", "--fixed-seconds", 0.5, "--seconds-per-token", 0.001)
    data = _json(file, "-t", 1000, "-k", 3, *options)
    best = optimize_boundaries(
        LengthHistogram.from_lengths(LENGTHS),
        BatchLimits(1000),
        3,
        StepTime(fixed_seconds=0.5, seconds_per_token=0.001),
    )
    assert data["objective"] == "seconds"
    assert data["cost"] == pytest.approx(best.cost)


def test_a_cost_is_an_objective_and_says_what_it_wins_over_least_padding(file):
    """The same cost as numbers or by coefficients; least padding priced by it."""
    data = _json(file, "-t", 1000, "-k", 3, "--objective", "0.5,0.001", "--no-search")
    hist, cost = (
        LengthHistogram.from_lengths(LENGTHS),
        StepTime(fixed_seconds=0.5, seconds_per_token=0.001),
    )
    best = optimize_boundaries(hist, BatchLimits(1000), 3, cost)
    least = optimize_boundaries(hist, BatchLimits(1000), 3)
    priced = evaluate_boundaries(hist, BatchLimits(1000), least.boundaries, cost)
    assert data["boundaries"] == list(best.boundaries)
    assert data["least_padding"]["cost"] == pytest.approx(priced.cost)
    assert data["least_padding"]["gain"] == pytest.approx(1 - best.cost / priced.cost)
    assert data["least_padding"]["gain"] >= 0
    assert "settings" not in data
    words = _optimize(file, "-t", 1000, "-k", 3, "--objective", "0.5,0.001", "--no-search").stdout
    assert "buckets of least padding" in " ".join(words.split())


def test_a_cost_makes_the_command_search_settings(file, tmp_path):
    """The table, the verdict and the written config are those of `optimize_seconds`."""
    output = tmp_path / "batching.toml"
    options = ("-t", 1000, "--objective", "0.5,0.001", "-r", 2, "--epochs", 3)
    found = optimize_seconds(
        LENGTHS,
        BatchLimits(1000),
        StepTime(fixed_seconds=0.5, seconds_per_token=0.001),
        num_replicas=2,
        num_epochs=3,
    )
    data = _json(file, *options, "--output", output)
    settings = data["settings"]
    expected = [candidate.seconds for candidate in found.candidates]
    assert [candidate["seconds"] for candidate in settings["candidates"]] == expected
    assert settings["gain"] == found.gain
    written, best = read_config(output), found.best.config
    assert {**written.to_dict(), "oversize": "error"} == best.to_dict()
    flat = " ".join(_optimize(file, *options).stdout.split())
    assert f"Take {found.best.label}:" in flat
    assert f"{found.best.label} *" in flat


def test_where_shapes_cost_much_a_setting_with_few_of_them_is_written(file, tmp_path):
    """At a minute a shape, 400 samples leave room for a handful; the default has dozens."""
    output = tmp_path / "batching.toml"
    options = ("--objective", "0.5,0.001", "--seconds-per-shape", 60, "--output", output)
    settings = _json(file, "-t", 1000, *options)["settings"]
    best = settings["candidates"][settings["best"]]
    assert best["prediction"]["num_shapes"] < 10
    default = next(one for one in settings["candidates"] if one["label"] == "pool")
    assert default["prediction"]["num_shapes"] > 20
    plan = build_plan(LENGTHS, read_config(output))
    assert num_shapes(plan.batches) == best["prediction"]["num_shapes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--objective", "seconds"), "at least one coefficient"),
        (("--objective", "paddding"), "--objective takes padding, steps, seconds"),
        (("--objective", "1,2,3,4"), "up to three numbers"),
        (("--search",), "--objective padding is no cost"),
        (("--objective", "1", "--search", "--pad-to-boundary"), "drop --pad-to-boundary"),
        (("-r", "2"), "belong to --search"),
        (("--objective", "1", "--no-search", "--epochs", "2"), "belong to --search"),
        (("--fixed-seconds", "1"), "need --objective seconds"),
        (("--boundaries", "0,x"), "whole numbers"),
        (("--boundaries", "0,50"), "the longest sample has"),
        (("--pad-to-multiple-of", "2000"), "above max_tokens"),
        (("--output", "."), "is a directory"),
    ],
)
def test_wrong_use_is_one_message_and_exit_code_2(file, options, words):
    result = _optimize(file, "-t", 1000, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_samples_over_the_budget_are_listed_or_handled(file):
    """LENGTHS[14] = 5 + 196 is the first of 201, one above a budget of 200."""
    stopped = _optimize(file, "-t", 200)
    assert stopped.exit_code == 2
    assert "row 14 (201 tokens)" in stopped.stderr
    over = sum(length > 200 for length in LENGTHS)
    left_out = _json(file, "-t", 200, "--oversize", "drop")
    assert left_out["num_samples"] == 400 - over
    assert f"{over} samples longer than 200 tokens are left out" in left_out["notes"]
    cut = _json(file, "-t", 200, "--oversize", "truncate")
    assert cut["num_samples"] == 400
    assert cut["real_tokens"] == sum(min(length, 200) for length in LENGTHS)


def test_no_samples_are_one_message(tmp_path):
    path = tmp_path / "none.npy"
    np.save(path, np.array([], np.int64))
    result = _optimize(path, "-t", 100)
    assert result.exit_code == 2
    assert "no samples" in result.stderr
