"""``lengthwise scan``: what is in there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_json, print_line, print_note, print_table

if TYPE_CHECKING:
    from lengthwise.lengths.result import ScanResult

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
FILES_SHOWN = 20
SPARKLINE_WIDTH = 60

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the lengths in source order: .npy (int64) or .parquet (columns row, length). "
        "Reading that file later takes no time.",
        show_default=False,
    ),
]
Histogram = Annotated[
    Path | None,
    typer.Option(
        "--histogram",
        help="Write how many samples have which length: .csv (length,count), .json or .npz.",
        show_default=False,
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-t",
        min=1,
        help="Warn about samples that would not fit a batch of this many tokens.",
        show_default=False,
    ),
]
FullHistogram = Annotated[
    bool,
    typer.Option("--with-histogram", help="Put the whole histogram into the JSON object, too."),
]


def command(
    source: options.Source,
    column: options.Column = None,
    on_bad: options.OnBad = options.OnBadChoice.ERROR,
    tokenizer: options.Tokenizer = None,
    output: Output = None,
    histogram: Histogram = None,
    with_histogram: FullHistogram = False,
    max_tokens: Budget = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """What is in there: how many samples, how long, and what to watch out for.

    A length is the number of tokens of one sample. Only the column that holds the lengths is
    read; a column of token lists is measured by its structure.
    """
    from lengthwise.cli.source import load_lengths
    from lengthwise.core.limits import BatchLimits
    from lengthwise.lengths.histogram_file import save_histogram
    from lengthwise.lengths.lengths_file import check_target, save_lengths

    if output is not None:
        check_target(output)
    limits = None if max_tokens is None else BatchLimits(max_tokens)
    scan = load_lengths(
        source, column, on_bad, tokenizer, quiet=quiet, threads=threads, limits=limits
    )
    if output is not None:
        save_lengths(scan, output)
        print_note(f"lengths written to {output}")
    if histogram is not None:
        save_histogram(scan.histogram, histogram)
        print_note(f"histogram written to {histogram}")
    if json:
        print_json(summary(scan, with_histogram=with_histogram))
    else:
        _print(scan)


def summary(scan: ScanResult, *, with_histogram: bool) -> dict[str, Any]:
    """The JSON object of ``scan --json``."""
    counts = scan.histogram
    empty = counts.num_samples == 0
    data: dict[str, Any] = {
        "num_samples": counts.num_samples,
        "num_tokens": counts.num_tokens,
        "mean_length": None if empty else counts.mean,
        "std_length": None if empty else counts.std,
        "shortest": None if empty else counts.shortest,
        "longest": None if empty else counts.longest,
        "quantiles": {} if empty else {str(q): counts.quantile(q) for q in QUANTILES},
        "num_distinct": len(counts),
        "column": scan.column,
        "num_rows_read": scan.num_rows_read,
        "num_bad": scan.num_bad,
        "first_bad": [asdict(bad) for bad in scan.first_bad],
        "warnings": list(scan.warnings),
        "files": [asdict(file) for file in scan.files],
    }
    if with_histogram:
        data["histogram"] = {"lengths": counts.lengths, "counts": counts.counts}
    return data


def _print(scan: ScanResult) -> None:
    counts = scan.histogram
    files = f" in {len(scan.files):,} files" if len(scan.files) > 1 else ""
    column = "" if scan.column is None else f", column {scan.column!r}"
    print_line(f"{scan.num_rows_read:,} rows{files}{column}")
    if scan.num_bad:
        print_line(f"{scan.num_kept:,} kept, {scan.num_bad:,} skipped as bad")
    if counts.num_samples == 0:
        return
    print_line(f"{counts.num_tokens:,} tokens")
    print_line(f"mean {counts.mean:,.1f}, standard deviation {counts.std:,.1f} tokens a sample")
    width = min(SPARKLINE_WIDTH, counts.longest - counts.shortest + 1)
    print_line(f"\n{counts.shortest:,} {counts.sparkline(width)} {counts.longest:,}\n")
    rows = [("shortest", f"{counts.shortest:,}")]
    rows += [(f"{q * 100:g} % are at most", f"{counts.quantile(q):,}") for q in QUANTILES]
    rows.append(("longest", f"{counts.longest:,}"))
    print_table("Lengths in tokens", ("share of samples", "tokens"), rows)
    if len(scan.files) > 1:
        shown = [(file.path, f"{file.num_rows:,}") for file in scan.files[:FILES_SHOWN]]
        left = len(scan.files) - len(shown)
        if left:
            shown.append((f"and {left:,} more", ""))
        print_table("Files", ("file", "rows"), shown)
