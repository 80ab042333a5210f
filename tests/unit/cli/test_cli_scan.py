"""``lengthwise scan``: its numbers, its files, its messages."""

import json
import statistics

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lengthwise.cli import source
from lengthwise.cli.app import app
from lengthwise.lengths.histogram_file import load_histogram

LENGTHS = [7, 3, 9, 4, 8, 2, 6, 4]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"seq_len": n, "t": "x"}) + "\n" for n in LENGTHS))
    return path


def _scan(*arguments):
    return CliRunner().invoke(app, ["scan", *map(str, arguments)])


def test_json_is_one_object_with_the_contracts_keys(file):
    """The oracle is the standard library's statistics."""
    result = _scan(file, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    data = json.loads(result.stdout)
    assert data["num_samples"] == data["num_rows_read"] == len(LENGTHS)
    assert data["num_tokens"] == sum(LENGTHS)
    assert data["mean_length"] == pytest.approx(statistics.fmean(LENGTHS))
    assert data["std_length"] == pytest.approx(statistics.pstdev(LENGTHS))
    assert (data["shortest"], data["longest"]) == (min(LENGTHS), max(LENGTHS))
    assert data["quantiles"]["0.5"] == sorted(LENGTHS)[3], "half of eight are no longer than it"
    assert data["quantiles"]["0.75"] == sorted(LENGTHS)[5]
    assert data["column"] == "seq_len"
    assert (data["num_bad"], data["first_bad"], data["warnings"]) == (0, [], [])
    assert data["files"] == [{"path": str(file), "num_rows": 8}]
    assert "histogram" not in data


def test_the_histogram_comes_on_request(file, tmp_path):
    data = json.loads(_scan(file, "--json", "--with-histogram").stdout)
    assert data["histogram"] == {"lengths": [2, 3, 4, 6, 7, 8, 9], "counts": [1, 1, 2, 1, 1, 1, 1]}
    result = _scan(file, "--histogram", tmp_path / "h.csv")
    assert f"histogram written to {tmp_path / 'h.csv'}" in result.stderr
    assert load_histogram(tmp_path / "h.csv").to_lengths().tolist() == sorted(LENGTHS)


def test_the_page_for_people_shows_the_same_numbers(file):
    shown = _scan(file).stdout
    line = "2 ▄▄█ ▄▄▄▄ 9"
    for text in ("8 rows, column 'seq_len'", "43 tokens", "mean 5.4", "50 % are at most", line):
        assert text in shown, text


def test_lengths_are_written_for_the_next_time(file, tmp_path):
    result = _scan(file, "--output", tmp_path / "lengths.npy", "--json")
    assert json.loads(result.stdout)["num_samples"] == 8
    written = np.load(tmp_path / "lengths.npy")
    assert (written.dtype, written.tolist()) == (np.int64, LENGTHS)
    assert json.loads(_scan(tmp_path / "lengths.npy", "--json").stdout)["num_tokens"] == 43
    _scan(file, "-o", tmp_path / "lengths.parquet")
    assert pq.read_table(tmp_path / "lengths.parquet").column("length").to_pylist() == LENGTHS


def test_a_wrong_output_is_refused_before_reading(tmp_path):
    result = _scan(tmp_path / "nowhere.parquet", "--output", tmp_path / "lengths.txt")
    assert result.exit_code == 2
    assert result.stderr == "error: lengths are saved as .npy or .parquet, not 'lengths.txt'\n"


def test_several_files_may_be_given_and_are_listed(file, tmp_path):
    (tmp_path / "b.jsonl").write_text('{"seq_len": 100}\n')
    result = _scan(file, tmp_path / "b.jsonl")
    assert "9 rows in 2 files" in result.stdout
    assert "b.jsonl" in result.stdout
    data = json.loads(_scan(tmp_path / "*.jsonl", "--json", "--threads", "2").stdout)
    assert [row["num_rows"] for row in data["files"]] == [8, 1]


def test_a_bad_row_ends_with_2_and_names_it(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"length": 3}\n{"length": -3}\n')
    result = _scan(tmp_path / "a.jsonl", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {tmp_path}/a.jsonl, line 2: negative: -3 tokens")
    assert "--on-bad skip" in result.stderr


def test_skipped_rows_are_counted_and_the_first_listed(tmp_path):
    rows = ['{"length": 3}', *['{"length": null}'] * 12, '{"length": 8}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    result = _scan(tmp_path / "a.jsonl", "--on-bad", "skip", "--json")
    data = json.loads(result.stdout)
    assert (data["num_rows_read"], data["num_samples"], data["num_bad"]) == (14, 2, 12)
    assert data["first_bad"][0] == {
        "file": str(tmp_path / "a.jsonl"),
        "row": 2,
        "reason": "null: there is no length",
        "unit": "line",
    }
    listed = result.stderr.splitlines()
    assert len(listed) == source.LISTED_BAD_ROWS + 1
    assert listed[0].endswith("a.jsonl, line 2: null: there is no length")
    assert listed[-1] == "warning: skipped 7 more rows"
    shown = _scan(tmp_path / "a.jsonl", "--on-bad", "skip").stdout
    assert "2 kept, 12 skipped as bad" in shown


def test_what_looks_wrong_is_a_warning_on_standard_error_and_in_the_object(tmp_path):
    np.save(tmp_path / "a.npy", np.full(50, 512))
    result = _scan(tmp_path / "a.npy", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: all 50 lengths are 512")
    assert json.loads(result.stdout)["warnings"][0].startswith("all 50 lengths are 512")


def test_a_path_that_is_not_there_is_no_text(tmp_path):
    """One word on the command line is a path, even where the Python function takes texts."""
    result = _scan("hello")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: there is no file or directory 'hello'\n",
    )


def test_text_needs_a_tokenizer_file(tmp_path):
    (tmp_path / "a.txt").write_text("some text\n")
    result = _scan(tmp_path / "a.txt")
    assert result.exit_code == 2
    assert "pass a tokenizer (tokenizer=... or --tokenizer tokenizer.json)" in result.stderr


def test_an_empty_source_is_reported_without_numbers(tmp_path):
    np.save(tmp_path / "a.npy", np.empty(0, np.int64))
    result = _scan(tmp_path / "a.npy", "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["num_samples"], data["mean_length"]) == (0, 0, None)
    assert data["warnings"] == ["there are no samples"]
    assert _scan(tmp_path / "a.npy").stdout.startswith("0 rows")


def test_samples_above_a_budget_are_warned_about_on_request(file):
    result = _scan(file, "--max-tokens", "7", "--json")
    (warning,) = json.loads(result.stdout)["warnings"]
    assert warning.startswith("2 samples are longer than 7 tokens")
    assert "(rows 2, 4)" in warning
    assert result.stderr == f"warning: {warning}\n"
