"""``lengthwise simulate``: its JSON, its words and its errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lengthwise.calibrate import (
    Calibration,
    Measurement,
    fit_cost,
    read_calibration,
    write_calibration,
)
from lengthwise.cli.app import app
from lengthwise.core.config import BatchingConfig
from lengthwise.core.cost import StepTime
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.files.config_file import write_config
from lengthwise.simulate import Machines, best_split, simulate, workload_of_batches

LENGTHS = np.array([5 + i * i % 197 for i in range(3_000)])
LIMITS = BatchLimits(1_000, 16)
TARGET = StepTime(fixed_seconds=0.5, seconds_per_token=1e-3)
DRAFTER = StepTime(fixed_seconds=0.1, seconds_per_token=2e-4)
COSTS = ("--target-cost", "0.5,1e-3", "--drafter-cost", "0.1,2e-4", "--bytes-per-token", 64)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lengths.npy"
    np.save(path, LENGTHS)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def found(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def workload(num_targets, num_drafters):
    """What the command is to simulate, put together by hand."""
    batches = Planner(LENGTHS, BatchingConfig(limits=LIMITS)).plan(0).batches
    return workload_of_batches(
        batches, TARGET, DRAFTER, bytes_per_token=64, batches_per_step=num_drafters
    )


def machines(num_targets, num_drafters):
    """With room for two batches a target, which is the command's default."""
    return Machines(
        num_targets=num_targets,
        num_drafters=num_drafters,
        channel_bytes=workload(num_targets, num_drafters).channel_bytes(2 * num_targets),
    )


def test_json_holds_what_the_python_functions_return(file):
    data = found(file, "-t", 1000, "-b", 16, *COSTS, "--num-targets", 3, "--num-drafters", 2)
    expected = json.loads(json.dumps(simulate(workload(3, 2), machines(3, 2)).to_dict()))
    assert {key: data[key] for key in expected} == expected
    assert data["bottleneck"] == "targets"
    assert data["low"] == data["high"] == data["tokens_per_second"]
    assert data["one_more"]["target"] > 0.2
    assert data["one_more"]["drafter"] < 0.01


def test_the_best_split_is_the_one_that_python_finds(file):
    data = found(file, "-t", 1000, "-b", 16, *COSTS, "--best-split", 6)
    best = best_split(workload, 6, machines)
    assert data["num_targets"] == best.best.machines.num_targets
    assert [one["tokens_per_second"] for one in data["splits"]] == [
        one.tokens_per_second for one in best.splits
    ]


def test_a_config_stands_for_the_limits(file, tmp_path):
    path = tmp_path / "batching.toml"
    write_config(BatchingConfig(limits=LIMITS), path)
    by_config = found(file, "--config", path, *COSTS)
    assert by_config == found(file, "-t", 1000, "-b", 16, *COSTS)


def test_batches_that_are_mixed_again_make_steps_of_their_own_size(file):
    # Steps of about 5,000 real tokens: their number is the total over that.
    data = found(
        file, "-t", 1000, "-b", 16, *COSTS, "--pool-batches", 8, "--tokens-per-step", 5_000
    )
    assert data["num_steps"] == LENGTHS.sum() // 5_000
    assert data["num_tokens"] == LENGTHS.sum()


def test_slow_copies_and_slow_reading_are_told(file):
    data = found(
        file, "-t", 1000, *COSTS, "--bandwidth", 20_000, "--feed-seconds", 9, "--epochs", 3
    )
    assert data["waits"]["target"]["input"] > 0
    assert data["feeder_busy"] > 0.9
    assert data["eta_seconds"] == 3 * data["seconds"]


def test_the_table_says_who_waits_for_whom_and_what_one_more_buys(file):
    result = run(file, "-t", 1000, "-b", 16, *COSTS, "--best-split", 3, "--epochs", 2)
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "1 + 2" in text
    assert "2 + 1" in text
    assert "The targets are the bottleneck, the drafter waits for hidden states." in text
    assert "the drafter waits" in text
    assert "One target device more: +" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (COSTS, "give either --config or --max-tokens"),
        (("-t", 1000, *COSTS, "--pool-batches", 3), "belong together"),
        (("-t", 1000, *COSTS, "--channel-bytes", 10), "channel_bytes 10 is too small"),
        (("-t", 1000, *COSTS[2:], "--target-cost", "1,2,3,4"), "--target-cost takes up to three"),
        (("-t", 1000, *COSTS[2:], "--target-cost", "no.json"), "there is no file no.json"),
        (("-t", 1000, *COSTS[2:], "--target-cost", "0"), "at least one coefficient above 0"),
    ],
)
def test_what_cannot_work_is_one_message_and_exit_code_2(file, arguments, message):
    result = run(file, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_config_and_limits_together_are_refused(file, tmp_path):
    path = tmp_path / "batching.toml"
    write_config(BatchingConfig(limits=LIMITS), path)
    for more in (("-t", 1000), ("-b", 16)):
        result = run(file, "--config", path, *more, *COSTS)
        assert result.exit_code == 2


def calibration(path, truth):
    """What `lengthwise calibrate` would write of a step that takes ``truth``, with some noise."""
    noise = np.random.default_rng(0)
    measured = [
        Measurement(
            size, longest, float(truth(np.array([size]), np.array([longest]))[0]) * jitter, None
        )
        for size in (1, 2, 4, 8, 16)
        for longest in (16, 32, 64, 128, 200)
        for jitter in noise.normal(1.0, 0.02, 3)
        if size * longest <= 1_000
    ]
    write_calibration(
        Calibration(
            fit=fit_cost(measured), memory=None, measurements=tuple(measured), what="forward",
            device="cpu", dtype="float32", machine="none", versions={},
        ),
        path,
    )  # fmt: skip
    return path


def test_costs_from_calibrations_give_a_band_around_the_rate(file, tmp_path):
    # The fit is of the same costs as written out above, so the rate is nearly the same; and the
    # band is as wide as the fit's own interval for the target, which is the bottleneck.
    target = calibration(tmp_path / "target.json", TARGET)
    drafter = calibration(tmp_path / "drafter.json", DRAFTER)
    data = found(
        file, "-t", 1000, "-b", 16, "--target-cost", target, "--drafter-cost", drafter,
        "--bytes-per-token", 64,
    )  # fmt: skip
    known = simulate(workload(1, 1), machines(1, 1)).tokens_per_second
    assert data["tokens_per_second"] == pytest.approx(known, rel=0.02)
    assert data["low"] < known < data["high"]
    batches = Planner(LENGTHS, BatchingConfig(limits=LIMITS)).plan(0).batches
    fit = read_calibration(target).fit
    low, high = fit.interval(batches.sizes, batches.padded, 0.9)
    assert data["high"] / data["low"] == pytest.approx(high / low, rel=0.01)


def test_the_table_shows_the_band(file, tmp_path):
    target = calibration(tmp_path / "target.json", TARGET)
    result = run(
        file, "-t", 1000, "--target-cost", target, "--drafter-cost", "0.1", "--bytes-per-token", 64,
        "--pool-batches", 4, "--tokens-per-step", 2_000,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("tokens a second")]
    assert "to" in line.split("(")[1]


def test_a_scenario_stands_for_options_and_the_command_line_goes_first(file, tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(
        'max_tokens = 1000\nmax_batch_size = 16\ntarget_cost = "0.5,1e-3"\n'
        'drafter_cost = "0.1,2e-4"\nbytes_per_token = 64\nnum_targets = 3\nnum_drafters = 2\n'
    )
    written = (file, "-t", 1000, "-b", 16, *COSTS, "--num-drafters", 2, "--num-targets")
    assert found(file, "--scenario", path) == found(*written, 3)
    assert found(file, "--scenario", path, "--num-targets", 4) == found(*written, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_target = 3", "no such options: num_target; there are"),
        ("source = ['x']", "no such options: source"),
        ("num_targets = ", "is no TOML file"),
    ],
)
def test_a_scenario_that_says_nothing_of_use_is_refused(file, tmp_path, text, message):
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    result = run(file, "--scenario", path, "-t", 1000, *COSTS)
    assert result.exit_code == 2
    assert message in result.stderr
