"""A table of the report in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.report.tables import WORDS_WIDTH

if TYPE_CHECKING:
    from rich.console import Console

    from lengthwise.report.tables import Table

_GAP = 2
_MARK = "→ "


def print_report_table(out: Console, table: Table) -> None:
    """Print a table in the width of the terminal, and what had no room.

    Args:
        out: where to.
        table: to print; marked rows get an arrow.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    fitted, left_out = table.fitted(out.width - len(_MARK), _GAP)
    shown = RichTable(
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        header_style="dim",
    )
    for column in fitted.columns:
        shown.add_column(
            column.short,
            justify="right" if column.numeric else "left",
            max_width=None if column.numeric else WORDS_WIDTH + len(_MARK),
            no_wrap=column.numeric,
            vertical="bottom",
        )
    for place, row in enumerate(fitted.rows):
        marked = place in fitted.marked
        mark = (_MARK if marked else " " * len(_MARK)) if fitted.marked else ""
        cells = [Text(cell) for cell in (mark + row[0], *row[1:])]
        shown.add_row(*cells, style="bold" if marked else "")
    out.print(table.caption, style="bold", markup=False)
    out.print(shown)
    if left_out:
        names = ", ".join(name.replace("-\n", "").replace("\n", " ") for name in left_out)
        out.print(f"left out for lack of width: {names}; --json has all", style="dim", markup=False)
