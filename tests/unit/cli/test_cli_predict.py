"""``lengthwise predict``: its JSON, its words and its errors."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lengthwise.calibrate import Calibration, Measurement, fit_cost, write_calibration
from lengthwise.cli.app import app
from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import StepTime
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.files.config_file import write_config
from lengthwise.lengths.histogram_file import save_histogram
from lengthwise.predict import Timing, predict_plan

LENGTHS = [5 + i * i % 197 for i in range(400)]
NUMBERS = "0.5,0.001,1e-6"
COST = StepTime(fixed_seconds=0.5, seconds_per_token=0.001, seconds_per_token_squared=1e-6)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lengths.npy"
    np.save(path, np.array(LENGTHS))
    return path


def _predict(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def _json(*arguments):
    result = _predict(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_json_holds_what_the_python_function_returns(file):
    data = _json(file, "-t", 1000, "-b", 16, "-k", 3, "-r", 2, "--cost", NUMBERS)
    assert list(data["strategies"]) == ["sorted", "random", "bucketed", "windowed", "pooled"]
    plan = build_plan(LENGTHS, BatchingConfig(limits=BatchLimits(1000, 16)), num_replicas=2)
    expected = json.loads(json.dumps(predict_plan(plan, LENGTHS, COST).to_dict()))
    row = data["strategies"]["pooled"]
    assert {key: row[key] for key in expected} == expected
    assert (data["num_replicas"], data["num_epochs"], data["run_of"]) == (2, 1, "pooled")
    assert data["num_samples"] == 400
    assert data["limits"]["max_tokens"] == 1000


@pytest.fixture
def calibration(tmp_path):
    """As `lengthwise calibrate` writes it: exact timings of a known cost, up to 600 tokens."""
    shapes = [(1, 50), (2, 100), (4, 150), (3, 200), (1, 201), (6, 100), (2, 20)]
    measurements = tuple(
        Measurement(*shape, float(COST(np.array(shape[:1]), np.array(shape[1:]))[0]))
        for shape in shapes
    )
    path = tmp_path / "cost.json"
    about = {"what": "forward_backward", "device": "cpu", "dtype": "float32", "machine": "a test"}
    fit = fit_cost(measurements)
    write_calibration(
        Calibration(fit=fit, memory=None, measurements=measurements, versions={}, **about), path
    )
    return path


def test_a_calibration_gives_an_interval_and_says_what_it_does_not_cover(file, calibration):
    """Batches of up to 1,000 tokens, and none above 600 was measured."""
    data = _json(file, "-t", 1000, "--cost", calibration, "--epochs", 2, "--level", 0.5)
    row = data["strategies"]["pooled"]
    assert row["low"] <= row["seconds"] <= row["high"]
    assert row["run_low"] == pytest.approx(2 * row["low"])
    assert row["run_high"] == pytest.approx(2 * row["high"])
    assert row["extrapolated"] > 0.5
    assert row["level"] == data["level"] == 0.5
    plan = build_plan(LENGTHS, BatchingConfig(limits=BatchLimits(1000)))
    assert row["seconds"] == pytest.approx(predict_plan(plan, LENGTHS, COST).seconds, rel=1e-6)
    flat = " ".join(_predict(file, "-t", 1000, "--cost", calibration).stdout.split())
    assert "90 % interval" in flat
    assert "a tenth larger or longer than any that the cost was measured on" in flat
    inside = _json(file, "-t", 600, "--cost", calibration)
    assert inside["notes"] == []


def test_rows_compare_with_sorted(file):
    rows = _json(file, "-t", 1000, "--cost", NUMBERS)["strategies"]
    assert rows["sorted"]["ratio_to_sorted"] == 1
    for row in rows.values():
        expected = rows["sorted"]["seconds"] / row["seconds"]  # the same real tokens
        assert row["ratio_to_sorted"] == pytest.approx(expected)


def test_a_run_is_epochs_and_new_shapes(file):
    """Shapes are compiled once, epochs run every time."""
    options = ("--epochs", 4, "--seconds-per-shape", 2.5)
    row = _json(file, "-t", 1000, "--cost", NUMBERS, *options)["strategies"]["pooled"]
    assert row["run_seconds"] == pytest.approx(4 * row["seconds"] + 2.5 * row["num_shapes"])
    assert row["run_low"] is None


def test_replicas_meet_as_the_options_say(file):
    options = ("-r", 2, "-a", 3, "--sync-every", 3, "--sync-seconds", 0.25)
    row = _json(file, "-t", 1000, "--cost", NUMBERS, *options)["strategies"]["pooled"]
    config = BatchingConfig(limits=BatchLimits(1000), accumulation_steps=3)
    plan = build_plan(LENGTHS, config, num_replicas=2)
    timing = Timing(sync_every=3, sync_seconds=0.25)
    assert row["seconds"] == predict_plan(plan, LENGTHS, COST, timing).seconds


def test_a_config_stands_beside_the_others_with_its_limits(file, tmp_path):
    config = BatchingConfig(limits=BatchLimits(800, 8), num_buckets=2, seed=3)
    path = tmp_path / "batching.toml"
    write_config(config, path)
    data = _json(file, "--config", path, "--cost", NUMBERS)
    assert data["limits"]["max_tokens"] == 800
    assert data["run_of"] == "config"
    expected = predict_plan(build_plan(LENGTHS, config), LENGTHS, COST)
    assert data["strategies"]["config"]["seconds"] == expected.seconds
    text = _predict(file, "--config", path, "--cost", NUMBERS).stdout
    assert "The run, 1 epoch of config:" in text


@pytest.mark.parametrize("option", [("-b", 8), ("--pad-to-multiple-of", 8), ("--oversize", "drop")])
def test_limits_beside_a_config_are_refused_not_ignored(file, tmp_path, option):
    path = tmp_path / "batching.toml"
    write_config(BatchingConfig(limits=BatchLimits(800)), path)
    result = _predict(file, "--config", path, "--cost", NUMBERS, *option)
    assert result.exit_code == 2
    assert "those of the config" in result.stderr


def test_a_histogram_is_predicted_in_expectation_and_said_to_be(tmp_path):
    path = tmp_path / "lengths.csv"
    save_histogram(LengthHistogram.from_lengths(LENGTHS), path)
    data = _json(path, "-t", 1000, "--cost", NUMBERS)
    basis = {name: row["basis"] for name, row in data["strategies"].items()}
    assert basis["random"] == basis["bucketed"] == "expected"
    assert basis["sorted"] == basis["pooled"] == "plan"
    assert any("random, bucketed in expectation" in note for note in data["notes"])


def test_the_words_name_every_strategy_part_and_note(file):
    flat = " ".join(_predict(file, "-t", 1000, "-r", 2, "--cost", NUMBERS).stdout.split())
    for words in ("sorted", "pool of open batches", "real tokens", "waiting", "attention"):
        assert words in flat
    assert "The run, 1 epoch of pooled:" in flat
    assert "no interval" in flat


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cost", NUMBERS), "either --max-tokens or --config"),
        (("-t", "1000", "--cost", "nowhere.json"), "no file nowhere.json"),
        (("-t", "1000", "--cost", "0"), "at least one coefficient"),
        (("-t", "100", "--cost", NUMBERS), "longer than a batch may be"),
        (("-t", "1000", "--cost", NUMBERS, "--boundaries", "0,50"), "the longest sample"),
    ],
)
def test_wrong_use_is_one_message_and_exit_code_2(file, options, words):
    result = _predict(file, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
