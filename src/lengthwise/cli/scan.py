"""``lengthwise scan``: what is in there."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_json, print_line, print_note, print_table, progress
from lengthwise.cli.source import LABEL, paths_of, with_oddities
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.lengths.result import ScanResult
    from lengthwise.lengths.shard_scan import ShardScan


class EngineChoice(StrEnum):
    """Who reads."""

    LOCAL = "local"
    RAY = "ray"


QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
FILES_SHOWN = 20
SPARKLINE_WIDTH = 60

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the lengths in source order: .npy (int64), .parquet (columns row, length), or "
        "a directory of shards, which goes on where an earlier scan stood. Reading that later "
        "takes no time.",
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
Engine = Annotated[
    EngineChoice,
    typer.Option(
        "--engine",
        help="Who reads: threads of this process (local), or the tasks of a Ray cluster (ray). "
        "The result is the same.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="The cluster of --engine ray: HOST:6379, auto (the one on this machine), or local "
        "(started here, for this scan). By default RAY_ADDRESS, else local.",
        show_default=False,
    ),
]
RowsPerShard = Annotated[
    int | None,
    typer.Option(
        "--rows-per-shard",
        min=1,
        help="Rows after which a shard ends; files and runs of row groups are never cut. By "
        "default about a million.",
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
    engine: Engine = EngineChoice.LOCAL,
    ray_address: RayAddress = None,
    rows_per_shard: RowsPerShard = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """What is in there: how many samples, how long, and what to watch out for.

    A length is the number of tokens of one sample. Only the column that holds the lengths is
    read; a column of token lists is measured by its structure.
    """
    from lengthwise.core.limits import BatchLimits
    from lengthwise.lengths.histogram_file import save_histogram
    from lengthwise.lengths.lengths_file import check_target, save_lengths
    from lengthwise.lengths.result import ScanResult

    in_shards = output is not None and (not output.suffix or output.is_dir())
    if output is not None and not in_shards:
        check_target(output)
    limits = None if max_tokens is None else BatchLimits(max_tokens)
    how: dict[str, Any] = {
        "column": column,
        "on_bad": str(on_bad),
        "tokenizer": None if tokenizer is None else str(tokenizer),
    }
    place = {"engine": str(engine), "ray_address": ray_address, "threads": threads}
    with progress(LABEL, quiet=quiet) as report:
        how["progress"] = report
        scan: ScanResult | ShardScan
        if output is not None and in_shards:
            scan = _into_shards(source, output, rows_per_shard, {**how, **place})
        else:
            scan = _into_memory(source, rows_per_shard, place, how)
    scan = with_oddities(scan, limits)
    if output is not None:
        if isinstance(scan, ScanResult):
            save_lengths(scan, output)
        print_note(f"lengths written to {output}")
    if histogram is not None:
        save_histogram(scan.histogram, histogram)
        print_note(f"histogram written to {histogram}")
    if json:
        print_json(summary(scan, with_histogram=with_histogram))
    else:
        _print(scan)


def _into_shards(
    source: list[str], output: Path, rows_per_shard: int | None, how: dict[str, Any]
) -> ShardScan:
    from lengthwise.cluster.scan import write_shards
    from lengthwise.lengths.jobs import ROWS_PER_SHARD

    rows = rows_per_shard or ROWS_PER_SHARD
    scan = write_shards(paths_of(source), output, rows_per_shard=rows, **how)
    if scan.num_found:
        print_note(f"{scan.num_found:,} of {len(scan.shards.paths):,} shards were there already")
    return scan


def _into_memory(
    source: list[str], rows_per_shard: int | None, place: dict[str, Any], how: dict[str, Any]
) -> ScanResult:
    if rows_per_shard is not None:
        raise ConfigError("--rows-per-shard belongs to shards: give --output a directory")
    if place["engine"] == EngineChoice.RAY:
        from lengthwise.cluster.scan import scan_on_ray

        return scan_on_ray(paths_of(source), ray_address=place["ray_address"], **how)
    from lengthwise.lengths.api import scan_lengths

    if place["ray_address"] is not None:
        raise ConfigError("--ray-address belongs to --engine ray")
    return scan_lengths(paths_of(source), threads=place["threads"], **how)


def summary(scan: ScanResult | ShardScan, *, with_histogram: bool) -> dict[str, Any]:
    """The JSON object of ``scan --json``."""
    from lengthwise.lengths.result import ScanResult

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
    if not isinstance(scan, ScanResult):
        data["shards"] = _shards(scan)
    if with_histogram:
        data["histogram"] = {"lengths": counts.lengths, "counts": counts.counts}
    return data


def _shards(scan: ShardScan) -> dict[str, Any]:
    shards = scan.shards
    return {
        "directory": str(shards.directory),
        "num_shards": len(shards.paths),
        "num_found": scan.num_found,
        "dtype": shards.manifest.dtype,
        "fingerprint": shards.fingerprint,
    }


def _print(scan: ScanResult | ShardScan) -> None:
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
