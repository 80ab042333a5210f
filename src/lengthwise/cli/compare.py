"""``lengthwise compare``: every strategy side by side, the frontier, and the report."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise._version import __version__
from lengthwise.cli.options import (
    BatchSizeMultipleOf,
    Column,
    Json,
    MaxBatchSize,
    MaxTokens,
    NumReplicas,
    OnBad,
    OnBadChoice,
    PadToMultipleOf,
    Quiet,
    Seed,
    Source,
    Threads,
    Tokenizer,
)
from lengthwise.cli.output import print_json, print_note, print_warning
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.lengths.result import ScanResult

AccumulationSteps = Annotated[
    int,
    typer.Option(
        "--accumulation-steps",
        "-a",
        min=1,
        help="Batches that an optimiser step takes on each replica; with --num-replicas it says "
        "how many batches must represent the data together.",
    ),
]
Buckets = Annotated[
    int,
    typer.Option("--num-buckets", "-k", min=1, help="Buckets of the bucketed strategy."),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        help="Write the report there: one HTML file that needs no network "
        "(pip install 'lengthwise[report]').",
        show_default=False,
    ),
]


def command(
    source: Source,
    max_tokens: MaxTokens,
    max_batch_size: MaxBatchSize = None,
    pad_to_multiple_of: PadToMultipleOf = 1,
    batch_size_multiple_of: BatchSizeMultipleOf = 1,
    num_buckets: Buckets = 6,
    num_replicas: NumReplicas = 1,
    accumulation_steps: AccumulationSteps = 1,
    seed: Seed = 0,
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    html: Html = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every batching strategy side by side on your lengths.

    Plans an epoch with each strategy under the same limits and shows what it costs (efficiency:
    real tokens / padded tokens; batches) and what it does to training (repeat rate: pairs of batch
    mates that meet again next epoch; design effect: how representative an optimiser step is in
    length, 1 as random samples, lower is better). Says which plan it recommends, and why.
    """
    from lengthwise.cli.source import load_lengths
    from lengthwise.core.limits import BatchLimits

    limits = BatchLimits(max_tokens, max_batch_size, pad_to_multiple_of, batch_size_multiple_of)
    if html is not None:
        _check_report_possible(html)
    scan = load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads)
    wish = _Wish(num_buckets, num_replicas, accumulation_steps, seed)
    result = _compare(scan, limits, wish, quiet=quiet)
    result["provenance"] = _provenance(source, seed)
    for warning in result.get("warnings") or ():
        print_warning(warning)
    result["warnings"] = [*scan.warnings, *(result.get("warnings") or ())]
    _show(result, html, as_json=json)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is asked for beside the limits, under the names of ``compare_strategies``."""

    num_buckets: int
    num_replicas: int
    accumulation_steps: int
    seed: int


def _compare(scan: ScanResult, limits: Any, wish: _Wish, *, quiet: bool) -> dict[str, Any]:
    from lengthwise.cli.output import progress
    from lengthwise.core.compare import compare_strategies

    with progress("comparing strategies", quiet=quiet) as report:
        return compare_strategies(
            scan.lengths,
            limits,
            num_buckets=wish.num_buckets,
            num_replicas=wish.num_replicas,
            accumulation_steps=wish.accumulation_steps,
            seed=wish.seed,
            progress=report,
        ).to_dict()


def _show(result: dict[str, Any], html: Path | None, *, as_json: bool) -> None:
    from lengthwise.cli.compare_view import print_comparison
    from lengthwise.report.data import ReportData

    data = ReportData.from_dict(result)
    if as_json:
        print_json(result)
    else:
        print_comparison(data)
    if html is not None:
        from lengthwise.report.html import render_html

        html.write_text(render_html(data), encoding="utf-8")
        print_note(f"report: {html}")


def _check_report_possible(html: Path) -> None:
    """Fail before the work, not after it, if the report cannot be made or written."""
    from lengthwise.report.plots import require_extra

    for module in ("jinja2", "vl_convert"):
        require_extra(module)
    if html.is_dir() or not html.absolute().parent.is_dir():
        raise ConfigError(
            f"--html {html}: must name a file in a folder that exists, such as report.html"
        )


def _provenance(source: list[str], seed: int) -> dict[str, Any]:
    return {
        "version": __version__,
        "command": shlex.join(["lengthwise", *sys.argv[1:]]),
        "source": shlex.join(source),
        "seed": seed,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
