"""``lengthwise diagnose``: why a run was as fast as it was, and why its loss jumps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise.cli.options import Json, PlanAgain
from lengthwise.cli.output import console, print_json, print_warning
from lengthwise.cli.report_table import print_report_table

if TYPE_CHECKING:
    from lengthwise.diagnose import Diagnosis

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_DIR",
        help="The output_dir of `lengthwise dflash train`, or the JSONL file of a BatchMonitor; "
        "the run may still be going on.",
        show_default=False,
    ),
]


def command(run_dir: Run, plan: PlanAgain = True, json: Json = False) -> None:
    """Why a run was as fast as it was, why its loss jumps, and what to change.

    Compares with what was predicted before the run (prediction.json): the difference in tokens a
    second is divided among causes that add up to it (padding, shapes of batches, overhead of each,
    slow devices, waiting by stage, late input, checkpoints), and what is left is named as such.
    Says what held the run up and when, how much of the loss's jumping is the mixture of lengths,
    which steps leapt and which samples were in them, and recommends one change.
    """
    from lengthwise.diagnose import diagnose

    found = diagnose(run_dir, with_plan=plan)
    for note in found.notes:
        print_warning(note)
    if json:
        print_json(found.to_dict())
    else:
        print_diagnosis(found)


def print_diagnosis(found: Diagnosis) -> None:
    """Print a diagnosis on standard output, in the width of the terminal."""
    from lengthwise.report.training import diagnosis as said

    out = console()
    out.print(said.verdict(found), markup=False, style="bold")
    for table in said.time_tables(found):
        out.print()
        print_report_table(out, table)
    paragraphs = ["\n".join(said.bottleneck(found)), said.jumps(found), said.skipped(found)]
    for text in filter(None, paragraphs):
        out.print()
        out.print(text, markup=False)
    if found.spikes:
        out.print()
        print_report_table(out, said.spike_table(found))
    samples = said.sample_table(found)
    if samples is not None:
        out.print()
        print_report_table(out, samples)
    out.print()
    out.print(f"What to change: {said.advice(found)}", markup=False, style="bold")
