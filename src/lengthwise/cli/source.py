"""From the SOURCE argument of a command to its lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lengthwise.cli.output import print_warning, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.core.limits import BatchLimits
    from lengthwise.lengths.result import ScanResult
    from lengthwise.lengths.shard_scan import ShardScan

    Scan = TypeVar("Scan", bound=ScanResult | ShardScan)

LABEL = "reading lengths"
LISTED_BAD_ROWS = 5
"""How many skipped rows are listed; all are counted."""


def load_lengths(
    source: Sequence[str],
    column: str | None = None,
    on_bad: str = "error",
    tokenizer: Path | None = None,
    *,
    quiet: bool = False,
    threads: int | None = None,
    limits: BatchLimits | None = None,
) -> ScanResult:
    """Read the lengths of SOURCE with a progress bar; print what is odd on standard error.

    With ``limits``, samples above the budget are odd, too.

    Returns:
        The scan: ``.lengths`` (int64, in source order), ``.histogram``, ``.warnings`` and so on.

    Raises:
        LengthwiseError: nothing to read, no such column, or a bad row; the app prints it.
    """
    from lengthwise.lengths.api import scan_lengths

    with progress(LABEL, quiet=quiet) as report:
        scan = scan_lengths(
            paths_of(source),
            column=column,
            on_bad=str(on_bad),
            tokenizer=None if tokenizer is None else str(tokenizer),
            threads=threads,
            progress=report,
        )
    return with_oddities(scan, limits)


def paths_of(source: Sequence[str]) -> list[Path | str]:
    """SOURCE as paths and URLs: one word is a path here, never a text."""
    from lengthwise.lengths.storage import is_url

    return [item if is_url(item) else Path(item) for item in source]


def with_oddities(scan: Scan, limits: BatchLimits | None) -> Scan:
    """Print what is odd about a scan on standard error.

    Returns:
        The scan, its warnings with those about ``limits``.
    """
    from lengthwise.lengths.checks import warnings_for

    if limits is not None:
        both = dict.fromkeys((*scan.warnings, *warnings_for(scan, limits)))
        scan = replace(scan, warnings=tuple(both))
    for warning in scan.warnings:
        print_warning(warning)
    for bad in scan.first_bad[:LISTED_BAD_ROWS]:
        print_warning(f"skipped {bad}")
    if scan.num_bad > LISTED_BAD_ROWS:
        print_warning(f"skipped {scan.num_bad - LISTED_BAD_ROWS:,} more rows")
    return scan
