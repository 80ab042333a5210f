"""``lengthwise dflash report``: a training run as one HTML page."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise._version import __version__
from lengthwise.cli.options import Json, PlanAgain
from lengthwise.cli.output import print_json, print_note, print_table, print_warning
from lengthwise.dflash.training.run_files import METRICS_FILE
from lengthwise.errors import ConfigError, DataError

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_DIR",
        help="The output_dir of `lengthwise dflash train`, or its metrics.jsonl; the run may still "
        "be going on.",
        show_default=False,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        help="Write the page there: one HTML file that needs no network "
        "(pip install 'lengthwise[report]').",
        show_default=False,
    ),
]


def command(run_dir: Run, html: Html = None, plan: PlanAgain = True, json: Json = False) -> None:
    """A training run as one HTML page, from the records it wrote.

    Curves of loss (raw, adjusted by length, smoothed), accuracy by position, acceptance on held-out
    prompts, learning rate, gradient norm, tokens a second against prediction; of a pipeline
    its queues and how busy each device was. With what `lengthwise diagnose` finds.
    """
    from lengthwise.diagnose import diagnose
    from lengthwise.report.data import Provenance
    from lengthwise.report.training import TrainingRun, render_training_html
    from lengthwise.report.training.sections import facts, headline

    path = run_dir / METRICS_FILE if run_dir.is_dir() else run_dir
    records = read_records(path)
    origin = Provenance(
        version=__version__,
        command=shlex.join(["lengthwise", *sys.argv[1:]]),
        source=str(run_dir),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    run = TrainingRun.from_records(records, origin)
    if html is not None:
        _write(html, render_training_html(run, diagnose(run_dir, with_plan=plan)))
    found = facts(run)
    if json:
        print_json({"headline": headline(run), **_summary(run), "html": html and str(html)})
        return
    print_table(headline(run), ["", "value", "note"], [(f.name, f.value, f.note) for f in found])
    if html is None:
        print_note("--html report.html writes the page with all curves")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records of a file of JSON lines.

    A last line without its end is left out with a warning: a run that goes on is writing it.

    Raises:
        DataError: there is no such file, it is empty, or a line is no JSON object.
    """
    if not path.is_file():
        raise DataError(f"{path}: there are no records; has a run written there?")
    records = []
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if lines.pop():
        print_warning(f"{path}: the last line is not complete; it is left out")
    for number, line in enumerate(lines, 1):
        try:
            record = jsonlib.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number}: a record is a JSON object")
        records.append(record)
    return records


def _summary(run: Any) -> dict[str, Any]:
    """The last record of each kind."""
    return {
        "num_steps": run.steps[-1]["step"],
        "last_step": run.steps[-1],
        "last_evaluation": run.evaluations[-1] if run.evaluations else None,
        "last_flow": run.flows[-1] if run.flows else None,
    }


def _write(html: Path, text: str) -> None:
    if html.is_dir():
        raise ConfigError(f"--html {html} is a directory; name a file, such as report.html")
    html.parent.mkdir(parents=True, exist_ok=True)
    html.write_text(text, encoding="utf-8")
    print_note(f"report: {html}")
