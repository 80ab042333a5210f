"""What a command shows: one JSON object or tables on standard output, the rest on standard error.

Standard output stays clean for ``--json``: progress, warnings and errors all go to standard error.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lengthwise.errors import LengthwiseWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.progress import Progress, TaskID

SILENT_SECONDS = 2.0
"""Work shorter than this shows no progress."""
PLAIN_WIDTH = 120
"""Columns of a table that goes to a file or a pipe; a terminal's own width is used otherwise."""
LOG_SECONDS = 10.0
"""Seconds between progress lines where standard error is no terminal."""


def print_json(data: object) -> None:
    """Print one JSON object on standard output; NumPy values become plain ones, NaN null."""
    sys.stdout.write(json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # a NumPy array or scalar, without importing NumPy here
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def console() -> Console:
    """The rich console on standard output, for tables."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(file=sys.stdout, highlight=False, width=width)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text_columns: int = 1,
) -> None:
    """Print a table on standard output.

    Args:
        title: line above the table.
        columns: header of each column.
        rows: cells, already formatted, one sequence a row.
        text_columns: how many columns from the left hold words; the rest is right-aligned.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style="dim",
    )
    for place, column in enumerate(columns):
        table.add_column(escape(column), justify="left" if place < text_columns else "right")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console().print(table)


def print_line(text: str = "") -> None:
    """Print one line on standard output, as it is."""
    sys.stdout.write(text + "\n")


def print_note(text: str) -> None:
    """Print one line on standard error: what was written where, what is being done."""
    sys.stderr.write(text + "\n")


def print_warning(text: str) -> None:
    """Print a warning on standard error."""
    sys.stderr.write(f"warning: {text}\n")


def print_error(text: str) -> None:
    """Print an error on standard error."""
    sys.stderr.write(f"error: {text}\n")


@contextmanager
def print_python_warnings() -> Iterator[None]:
    """Show Python warnings as one plain line each, without file and source line."""

    def show(message: Warning | str, *_where: Any, **_more: Any) -> None:
        print_warning(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", LengthwiseWarning)
        warnings.showwarning = show
        yield


@contextmanager
def progress(
    label: str, *, quiet: bool = False
) -> Iterator[Callable[[int, int | None, str], None]]:
    """Show how far a long piece of work is, on standard error, once it takes over two seconds.

    Yields a function ``report(done, total, unit)``; ``total`` may be None. It may be called from
    several threads. A terminal gets a bar, anything else a line every ten seconds.
    """
    shown = _Progress(label, quiet=quiet)
    try:
        yield shown.report
    finally:
        shown.close()


class _Progress:
    def __init__(self, label: str, *, quiet: bool) -> None:
        self._label = label
        self._quiet = quiet
        self._lock = threading.Lock()
        self._next = time.monotonic() + SILENT_SECONDS
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def report(self, done: int, total: int | None, unit: str) -> None:
        """Take note of ``done`` of ``total`` units."""
        if self._quiet or time.monotonic() < self._next:
            return
        with self._lock:
            if sys.stderr.isatty():
                self._draw(done, total, unit)
                self._next = time.monotonic() + 0.1
            else:
                share = f" of {total:,}" if total else ""
                print_note(f"{self._label}: {done:,}{share} {unit}")
                self._next = time.monotonic() + LOG_SECONDS

    def _draw(self, done: int, total: int | None, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,} {task.fields[unit]}"),
                TimeRemainingColumn(),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=total, completed=done, unit=unit)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total, unit=unit)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
