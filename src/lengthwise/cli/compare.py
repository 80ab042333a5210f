"""``lengthwise compare``: every strategy side by side, the frontier, and the report."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise._version import __version__
from lengthwise.cli.options import (
    AccumulationSteps,
    BatchSizeMultipleOf,
    Boundaries,
    Buckets,
    Column,
    Json,
    MaxBatchSize,
    MaxTokens,
    OnBad,
    OnBadChoice,
    Oversize,
    OversizeChoice,
    PadToMultipleOf,
    Quiet,
    Seed,
    Source,
    Threads,
    Tokenizer,
    read_boundaries,
)
from lengthwise.cli.output import print_json, print_note, print_warning
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.core.limits import BatchLimits, Int64Array


DEFAULT_REPLICAS = 8

Replicas = Annotated[
    int,
    typer.Option(
        "--num-replicas",
        "-r",
        min=1,
        help="Replicas (data-parallel ranks) that train together; each gets one batch a step. "
        "The default is one machine of eight.",
    ),
]
Frontier = Annotated[
    bool,
    typer.Option(
        "--frontier/--no-frontier",
        help="Measure every family of plans over its parameter as well; most of the time goes "
        "there.",
    ),
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
    boundaries: Boundaries = None,
    num_replicas: Replicas = DEFAULT_REPLICAS,
    accumulation_steps: AccumulationSteps = 1,
    oversize: Oversize = OversizeChoice.ERROR,
    seed: Seed = 0,
    frontier: Frontier = True,
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    html: Html = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every batching strategy side by side on your lengths.

    Plans two epochs with each strategy under the same limits and shows what it costs (efficiency:
    real tokens / padded tokens; batches an epoch) and what it does to training (repeat rate: share
    of pairs that share a batch and meet again next epoch; design effect: how representative an
    optimiser step is in length, 1 as random samples, lower is better). Says which plan it
    recommends, and why.
    """
    from lengthwise.cli.source import load_lengths
    from lengthwise.core.limits import BatchLimits

    limits = BatchLimits(max_tokens, max_batch_size, pad_to_multiple_of, batch_size_multiple_of)
    choices = {
        "num_buckets": num_buckets,
        "boundaries": None if boundaries is None else read_boundaries(boundaries),
        "num_replicas": num_replicas,
        "accumulation_steps": accumulation_steps,
        "oversize": oversize.value,
        "seed": seed,
        "frontier": frontier,
    }
    if html is not None:
        _prepare_report(html)
    scan = load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads)
    result = _compare(scan.lengths, limits, choices, quiet=quiet)
    result["warnings"] = [*scan.warnings, *_oversize_warnings(result, oversize)]
    result["provenance"] = _provenance(source, seed)
    _show(result, html, as_json=json)


def _compare(
    lengths: Int64Array, limits: BatchLimits, choices: dict[str, Any], *, quiet: bool
) -> dict[str, Any]:
    from lengthwise.cli.output import progress
    from lengthwise.compare.strategies import compare_strategies

    with progress("comparing strategies", quiet=quiet) as report:
        return compare_strategies(lengths, limits, progress=report, **choices).to_dict()


def _oversize_warnings(result: dict[str, Any], policy: OversizeChoice) -> list[str]:
    number = result["num_oversize"]
    if not number:
        return []
    what = {
        OversizeChoice.DROP: "are left out of every plan",
        OversizeChoice.TRUNCATE: "count as cut to the longest that fits",
        OversizeChoice.SINGLE: "get batches of their own, which exceed max_tokens",
    }
    limit = result["limits"]["max_tokens"]
    text = f"{number:,} samples fit no batch of {limit:,} tokens and {what[policy]}"
    print_warning(text)
    return [text]


def _show(result: dict[str, Any], html: Path | None, *, as_json: bool) -> None:
    from lengthwise.cli.compare_view import print_comparison
    from lengthwise.report.data import ReportData

    data = ReportData.from_dict(result)
    if html is not None:
        from lengthwise.report.html import render_html

        html.write_text(render_html(data), encoding="utf-8")
    if as_json:
        print_json(result)
    else:
        print_comparison(data)
    if html is not None:
        print_note(f"report: {html}")


def _prepare_report(html: Path) -> None:
    """Fail before the work, not after it, where the report cannot be made or written."""
    from lengthwise.report.plots import require_extra

    for module in ("jinja2", "vl_convert"):
        require_extra(module)
    if html.is_dir():
        raise ConfigError(f"--html {html} is a directory; name a file, such as report.html")
    html.parent.mkdir(parents=True, exist_ok=True)


def _provenance(source: list[str], seed: int) -> dict[str, Any]:
    return {
        "version": __version__,
        "command": shlex.join(["lengthwise", *sys.argv[1:]]),
        "source": shlex.join(source),
        "seed": seed,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
