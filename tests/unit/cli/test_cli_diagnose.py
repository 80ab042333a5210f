"""``lengthwise diagnose`` and its section in the report: what they say and refuse."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.diagnose import diagnose
from lengthwise.report.training import diagnosis as said
from support.planted_runs import Planted, step_row, write_run

SLOW = replace(Planted(), target_factors=(1.0, 2.0))


def run(*arguments):
    """Exit code, standard output and standard error."""
    found = CliRunner().invoke(app, list(map(str, arguments)))
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture
def run_dir(tmp_path):
    write_run(tmp_path / "run", SLOW, promised=Planted())
    return tmp_path / "run"


def test_the_terminal_goes_from_the_verdict_to_the_change(run_dir):
    code, out, err = run("diagnose", run_dir)
    assert code == 0
    text = " ".join(out.split())
    order = [
        "74.5 % of the 7,972 predicted (outside 7,733 to 8,211)",
        "From predicted to measured",
        "a device slower than the others +3.8",
        "not explained",
        "measured 15.4 5,938",
        "Where the time went",
        "target worker 1",
        "The targets are the bottleneck",
        "What to change: Look at target worker 1",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "neither train_config.json nor a checkpoint" in err


def test_json_is_one_object_with_causes_that_add_up(run_dir):
    code, out, _ = run("diagnose", run_dir, "--json")
    found = json.loads(out)
    assert code == 0
    assert sum(one["seconds"] for one in found["time"]) == pytest.approx(found["seconds"])
    compared = found["prediction"]
    difference = compared["measured_tokens_per_second"] - compared["predicted_tokens_per_second"]
    causes = {one["name"]: one["tokens_per_second"] for one in compared["causes"]}
    assert sum(causes.values()) == pytest.approx(difference)
    assert min(causes, key=causes.get) == "imbalance"
    assert found["advice"]["kind"] == "slow_device"
    assert compared["is_inside"] is False
    assert [device["name"] for device in found["devices"]] == [
        "target_0", "target_1", "drafter_0", "drafter_1",
    ]  # fmt: skip
    assert found["kind"] == "pipeline"


def test_a_run_without_prediction_says_so_and_does_without(tmp_path):
    write_run(tmp_path, SLOW)
    code, out, err = run("diagnose", tmp_path, "--no-plan")
    assert code == 0
    assert "nothing was predicted" in out
    assert "From predicted" not in out
    assert "there is no prediction.json" in err
    assert "train_config" not in err


def test_no_run_is_wrong_use(tmp_path):
    code, out, err = run("diagnose", tmp_path)
    assert (code, out) == (2, "")
    assert "name the output_dir of a run" in " ".join(err.split())


def test_a_run_that_is_writing_can_be_diagnosed(run_dir):
    with (run_dir / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 61, "lo')
    code, out, err = run("diagnose", run_dir, "--json")
    assert code == 0
    assert json.loads(out)["num_steps"] == 60
    assert "the last line is cut short" in err


def test_the_page_has_the_diagnosis(run_dir, tmp_path):
    pytest.importorskip("jinja2")
    page = tmp_path / "report.html"
    code, *_ = run("dflash", "report", run_dir, "--html", page)
    assert code == 0
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert '<h2 id="diagnosis">Diagnosis</h2>' in text
    assert "What to change:</strong> Look at target worker 1" in text
    assert "From predicted to measured" in text
    assert "Ranks wait in each step for the slowest" in text, "what the causes mean"


def test_tables_show_all_that_counts_and_always_what_is_not_explained(run_dir):
    found = diagnose(run_dir)
    table = said.comparison_table(found.comparison)
    shown = {row[0]: row[1:] for row in table.rows}
    causes = {one.label: one for one in found.comparison.causes}
    least = 0.0005 * found.account.seconds
    expected = {label for label, one in causes.items() if abs(one.seconds) >= least}
    assert set(shown) == expected | {"predicted", "measured", "not explained"}
    assert shown["predicted"] == ("11.4", "7,972")
    # Signs of the two columns are opposite: more seconds, fewer tokens a second.
    assert shown["a device slower than the others"] == ("+3.8", "−1,951")


def spiky(folder):
    """A run whose loss leaps once, in steps with two length classes."""
    import numpy as np

    draw = np.random.default_rng(0)
    rows = []
    for step in range(1, 101):
        losses = 3 + draw.normal(0, 0.05, 2) + (2.0 if step == 60 else 0.0)
        rows.append(
            step_row(
                step,
                float(losses.mean()),
                loss_length_1_9=float(losses[0]),
                loss_length_10_99=float(losses[1]),
                share_length_1_9=0.5,
                share_length_10_99=0.5,
            )
        )
    rows.append(step_row(101) | {"loss": None, "skipped": 1})
    write_run(folder, Planted(), rows=rows)


def test_jumps_and_spikes_are_told(tmp_path):
    spiky(tmp_path)
    code, out, _ = run("diagnose", tmp_path)
    text = " ".join(out.split())
    assert code == 0
    assert "Of the variance" in text
    assert "between length classes" in text
    assert "Spikes of the loss" in text
    assert "Loss or gradient was not finite in 1 step: 101." in text
    found = json.loads(run("diagnose", tmp_path, "--json")[1])
    assert [spike["step"] for spike in found["spikes"]] == [60]
    assert found["skipped"] == [{"step": 101, "contents": None}]
