"""``lengthwise dflash report`` and the live view: what they write, say and refuse."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lengthwise.cli.app import app
from lengthwise.cli.dflash.pipeline_view import (
    BAR_WIDTH,
    PipelineView,
    bar,
    live_table,
    plain_lines,
)
from lengthwise.dflash.metrics import DraftSums
from lengthwise.dflash.training.progress import Position, StepFacts
from lengthwise.dflash.update import StepResult
from lengthwise.pipeline.flow import Account, Flow
from lengthwise.pipeline.telemetry import RunFacts, Telemetry
from support.training_records import pipeline_records


@pytest.fixture
def run_dir(tmp_path):
    lines = [json.dumps(record) for record in pipeline_records()]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def run(*arguments):
    """Exit code, standard output and standard error."""
    found = CliRunner().invoke(app, ["dflash", "report", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def test_the_page_is_written_where_it_is_asked_for(run_dir):
    code, out, err = run(run_dir, "--html", run_dir / "pages" / "report.html")
    assert code == 0
    page = (run_dir / "pages" / "report.html").read_text(encoding="utf-8")
    assert "After 120 optimiser steps the drafter gets 1.75" in page
    assert str(run_dir) in page
    assert "1.75" in out
    assert "report.html" in err


def test_json_has_the_last_record_of_each_kind(run_dir):
    code, out, _ = run(run_dir, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["num_steps"] == 120
    assert found["last_step"]["step"] == 120
    assert found["last_evaluation"]["eval_tokens_per_verify"] == 1.75
    assert found["last_flow"]["flow_bottleneck"] == "targets"
    assert found["html"] is None


def test_the_records_file_may_be_named_itself(run_dir):
    code, out, err = run(run_dir / "metrics.jsonl")
    assert code == 0
    assert "tokens per verification" in out
    assert "--html" in err


def test_a_run_that_is_writing_can_be_looked_at(run_dir):
    # The last line of a file that grows may be half a line.
    with (run_dir / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 122, "lo')
    code, _, err = run(run_dir, "--json")
    assert code == 0
    assert "the last line is not complete" in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there are no records"),
        ("", "no record of an optimiser step yet"),
        ('{"step": 1, "loss": 2}\nnot json\n', "line 2: not JSON"),
        ("[1, 2]\n", "line 1: a record is a JSON object"),
        ('{"step": 1.5, "loss": 2}\n', "whole-number step"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content, encoding="utf-8")
    code, out, err = run(tmp_path)
    assert code == 2
    assert message in " ".join(err.split())
    assert out == ""


def test_a_directory_is_no_place_for_a_page(run_dir):
    code, _, err = run(run_dir, "--html", run_dir)
    assert code == 2
    assert "is a directory" in err


def telemetry_after(seconds=20, *, learnt=90):
    facts = RunFacts(10_000, 0, 0.9, 5, 8, 1 << 20)
    telemetry = Telemetry(facts)
    flow = Flow(
        prefetch=4,
        prefetch_room=4,
        pages_used=9,
        num_pages=36,
        workers={"target worker 0 (cpu)": Account()},
        ranks={"drafter rank 0 (cpu)": Account()},
    )
    for _ in range(seconds):
        flow.seconds += 1
        flow.real_tokens += 100
        flow.padded_tokens += 125
        flow.workers["target worker 0 (cpu)"].add(0.95, 0.05)
        flow.ranks["drafter rank 0 (cpu)"].add(0.25, 0.75)
        telemetry.stepped(StepFacts(3, learnt, 0.1, 0.2))
        telemetry.flowed(flow)
    return telemetry, flow


LAST = {"loss": 3.25, "accuracy": 0.5, "streak": 2.0, "learning_rate": 6e-4, "grad_norm": 1.5}


def test_plain_lines_say_what_the_table_says():
    telemetry, flow = telemetry_after()
    first, second, third = plain_lines(20, 100, LAST, telemetry, flow)
    assert first == (
        "step 20 of 100, 1 min 31 s left: loss 3.2500, accuracy 0.500, streak 2.00, "
        "learning rate 6.00e-04, gradient norm 1.5, tokens/s 100, with padding 125, "
        "efficiency 80.0 % (plan 90.0 %)"
    )
    assert second == (
        "  target worker 0 (cpu) 95 % busy; drafter rank 0 (cpu) 25 % busy; "
        "prefetch 4 of 4 batches; hidden states 0 steps ready; arena 9 of 36 pages, 9.0 MiB"
    )
    assert third.startswith("  the targets are the bottleneck")


def test_the_table_fits_a_terminal_and_has_every_figure():
    telemetry, flow = telemetry_after()
    file = io.StringIO()
    Console(file=file, width=100).print(live_table(20, 100, LAST, telemetry, flow))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    for part in ("step 20 of 100", "95 % busy", "loss 3.2500", "4 of 4", "the targets are the"):
        assert part in text


def test_before_anything_flows_the_table_says_what_happens():
    file = io.StringIO()
    telemetry = Telemetry(RunFacts(1, 0, 1.0, 1, 1, 1))
    Console(file=file).print(live_table(0, 10, {}, telemetry, None))
    assert "models load" in file.getvalue()


@pytest.mark.parametrize(
    ("share", "expected"), [(None, 0), (0.0, 0), (0.5, 10), (1.0, 20), (1.7, 20), (-1.0, 0)]
)
def test_a_bar_is_as_long_as_its_share(share, expected):
    text = bar(share)
    assert len(text) == BAR_WIDTH
    assert text.count("█") == expected


class Log:
    """Keeps what is written."""

    def __init__(self):
        self.records, self.last, self.last_evaluation = [], {}, {}

    def stepped(self, position, result, facts):
        self.last = {**LAST, "tokens_per_second": 10.0, "step": position.num_steps}

    def write(self, record):
        self.records.append(record)


def test_the_view_writes_flow_records_and_a_last_one(capsys):
    telemetry, flow = telemetry_after(1)
    log = Log()
    view = PipelineView(100, log, telemetry, num_done=7, quiet=False)
    with view:
        flow.seconds += 5
        view.flowed(flow)
        assert [record["step"] for record in log.records] == [7]
        result = StepResult("stepped", DraftSums.zeros(4), 1.0, 1e-3)
        view.stepped(Position(8, 0, 8), result, StepFacts(3, 90, 0.1, 0.2))
        flow.seconds += 0.5
        view.flowed(flow)
        assert len(log.records) == 1, "half a second later no new one is due"
    assert [record["step"] for record in log.records] == [7, 8]
    assert log.records[-1]["flow_seconds"] == flow.seconds
    # Within ten seconds of the start nothing is shown where there is no terminal.
    assert capsys.readouterr().err == ""
