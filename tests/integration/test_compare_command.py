"""``lengthwise compare`` from a file to tables, JSON and the report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.report.data import ReportData

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = ["--max-tokens", "4096", "--max-batch-size", "32", "--num-replicas", "2"]


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "lengths.npy"
    drawn = np.random.default_rng(0).lognormal(5.0, 0.8, 4_000)
    np.save(path, np.clip(drawn, 1, 4_096).astype(np.int64))
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["compare", *arguments])


def test_json_is_one_object_with_the_names_of_the_contract(lengths: Path):
    result = run(str(lengths), *LIMITS, "--no-frontier", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {"sorted", "random", "bucketed", "windowed", "packed"} <= set(found["strategies"])
    for row in found["strategies"].values():
        assert {"efficiency", "num_batches"} <= set(row)
    assert found["strategies"]["packed"]["efficiency"] == 1.0
    assert found["frontier"] == []
    assert [row["recommended"] for row in found["strategies"].values()].count(True) == 1


def test_the_json_makes_the_report_again(lengths: Path, tmp_path: Path):
    # The page that --html writes and the saved JSON come from the same numbers.
    page = tmp_path / "new" / "report.html"
    result = run(str(lengths), *LIMITS, "--html", str(page), "--json")
    assert result.exit_code == 0, result.output
    data = ReportData.from_dict(json.loads(result.stdout))
    text = page.read_text(encoding="utf-8")
    assert data.recommended is not None
    assert f"{data.recommended.num_batches:,.0f} batches" in text
    assert 'id="plot-frontier"' in text
    assert str(lengths) in data.provenance.source
    assert str(page) in result.stderr


def test_tables_and_the_recommendation_are_printed(lengths: Path):
    result = run(str(lengths), *LIMITS, "--no-frontier", "--boundaries", "0,100,4097")
    assert result.exit_code == 0, result.output
    assert "Strategies side by side" in result.stdout
    assert "given buckets" in result.stdout
    assert "the recommended plan (" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--boundaries", "0,x"], "whole numbers such as"),
        (["--html", "."], "is a directory"),
        (["--max-tokens", "1000"], "1,000"),
    ],
)
def test_wrong_use_ends_with_2_and_one_message(lengths: Path, arguments: list[str], said: str):
    result = run(str(lengths), *LIMITS, "--no-frontier", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_oversize_samples_are_counted_in_the_warnings(lengths: Path):
    result = run(
        str(lengths), "--max-tokens", "1000", "--no-frontier", "--oversize", "drop", "--json"
    )
    assert result.exit_code == 0, result.output
    number = int((np.load(lengths) > 1_000).sum())
    assert number > 0
    expected = f"{number:,} samples fit no batch of 1,000 tokens and are left out of every plan"
    assert expected in json.loads(result.stdout)["warnings"]
    assert expected in result.stderr
