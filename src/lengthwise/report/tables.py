"""The report's tables as text cells; the page and the terminal draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.report.words import ABSENT, count, measure, seconds, share, signed, significant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lengthwise.report.data import BoundariesRow, FrontierPoint, ReportData, StrategyRow


WORDS_WIDTH = 34
"""Characters after which a column of words wraps rather than pushing numbers out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, a short one for the terminal, and what is good in it.

    ``priority`` orders which columns a narrow terminal keeps; 0 is never left out.
    """

    header: str
    short: str
    numeric: bool = True
    better: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under columns; ``marked`` are the row numbers to emphasise."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()

    def without_empty_columns(self) -> Table:
        """The table without the columns in which no figure was measured."""
        keep = [
            place
            for place in range(len(self.columns))
            if any(row[place] != ABSENT for row in self.rows)
        ]
        return self._only(keep)

    def fitted(self, width: int, gap: int) -> tuple[Table, tuple[str, ...]]:
        """The table cut to ``width`` characters, and the headings of the columns left out.

        Columns go in falling ``priority``; those of priority 0 stay whatever the width.
        """
        keep = list(range(len(self.columns)))
        while sum(self._width(place) + gap for place in keep) > width:
            last = max(keep, key=lambda place: (self.columns[place].priority, place))
            if not self.columns[last].priority:
                break
            keep.remove(last)
        left = [self.columns[at].short for at in range(len(self.columns)) if at not in keep]
        return self._only(keep), tuple(left)

    def _width(self, place: int) -> int:
        column = self.columns[place]
        cells = [*column.short.split("\n"), *(row[place] for row in self.rows)]
        longest = max(len(text) for text in cells)
        return longest if column.numeric else min(longest, WORDS_WIDTH)

    def _only(self, keep: list[int]) -> Table:
        return Table(
            caption=self.caption,
            columns=tuple(self.columns[place] for place in keep),
            rows=tuple(tuple(row[place] for place in keep) for row in self.rows),
            marked=self.marked,
        )


STRATEGY_COLUMNS = (
    Column("strategy", "strategy", numeric=False),
    Column("efficiency", "efficiency", better="higher"),
    Column("batches", "batches", better="lower"),
    Column("utilization", "utili-\nzation", better="higher", priority=1),
    Column("repeat rate", "repeat\nrate", better="lower"),
    Column("design effect", "design\neffect", better="lower", priority=2),
    Column("order correlation", "order\ncorr.", better="near 0", priority=4),
    Column("spread in a batch", "spread", priority=5),
    Column("tokens per step (CV)", "tokens\nCV", better="lower", priority=7),
    Column("samples per step (CV)", "samples\nCV", better="lower", priority=8),
    Column("shapes", "shapes", better="lower", priority=6),
    Column("replica balance", "balance", better="higher", priority=9),
    Column("planning time", "plan\ntime", better="lower", priority=3),
)


def strategy_table(data: ReportData) -> Table:
    """Every strategy with every measured figure; the bound stands last."""
    rows = sorted(data.strategies, key=lambda row: row.is_bound)
    return Table(
        caption="Strategies side by side, one epoch each",
        columns=STRATEGY_COLUMNS,
        rows=tuple(_strategy_cells(row) for row in rows),
        marked=frozenset(place for place, row in enumerate(rows) if row.recommended),
    ).without_empty_columns()


def _strategy_cells(row: StrategyRow) -> tuple[str, ...]:
    return (
        row.label,
        share(row.efficiency),
        count(row.num_batches),
        share(row.utilization),
        significant(row.repeat_rate),
        measure(row.design_effect),
        signed(row.order_correlation),
        measure(row.length_spread),
        measure(row.tokens_per_step_cv),
        measure(row.samples_per_step_cv),
        count(row.num_shapes),
        significant(row.replica_balance, 3),
        seconds(row.planning_seconds),
    )


def parameter(value: float) -> str:
    """A frontier point's parameter: a count, or a target efficiency as a percentage."""
    if 0 < value < 1:
        return share(value).replace(".0 %", " %")
    return f"{value:,.0f}" if float(value).is_integer() else significant(value, 3)


def frontier_table(points: Iterable[FrontierPoint]) -> Table:
    """The frontier: one row a plan, in the order of the comparison."""
    columns = (
        Column("family", "family", numeric=False),
        Column("K, W or target", "K, W or target"),
        Column("efficiency", "efficiency", better="higher"),
        Column("repeat rate", "repeat rate", better="lower"),
        Column("batches", "batches", better="lower", priority=1),
        Column("design effect", "design effect", better="lower", priority=2),
    )
    rows = tuple(
        (
            point.family,
            parameter(point.parameter),
            share(point.efficiency),
            significant(point.repeat_rate),
            count(point.num_batches),
            measure(point.design_effect),
        )
        for point in points
    )
    return Table("Efficiency against repeat rate", columns, rows).without_empty_columns()


def bucket_table(bucketing: BoundariesRow) -> Table:
    """The optimal buckets: what is in each, and which part of all padding it causes."""
    padding = sum(bucket.padding_tokens for bucket in bucketing.buckets)
    columns = (
        Column("bucket", "bucket", numeric=False),
        Column("samples", "samples"),
        Column("mean length", "mean length"),
        Column("batch size", "batch size"),
        Column("batches", "batches"),
        Column("efficiency", "efficiency"),
        Column("share of padding", "share of padding"),
    )
    rows = tuple(
        (
            interval(bucket.lo, bucket.hi),
            count(bucket.num_samples),
            significant(bucket.mean_length, 4),
            significant(bucket.batch_size, 3),
            count(bucket.num_batches),
            share(bucket.efficiency),
            share(bucket.padding_tokens / padding if padding else 0.0),
        )
        for bucket in bucketing.buckets
    )
    return Table("The optimal buckets, one by one", columns, rows).without_empty_columns()


def baseline_table(data: ReportData) -> Table:
    """The optimal boundaries above the baselines, best first."""
    optimal = [data.bucketing] if data.bucketing else []
    others = sorted(data.baselines, key=lambda row: -row.efficiency)
    columns = (
        Column("boundaries from", "from", numeric=False),
        Column("buckets", "buckets"),
        Column("efficiency", "efficiency", better="higher"),
        Column("batches", "batches", better="lower"),
        Column("boundaries", "boundaries", numeric=False),
    )
    rows = tuple(
        (
            row.name,
            count(max(0, len(row.boundaries) - 1)),
            share(row.efficiency, 2),
            count(row.num_batches),
            " ".join(str(edge) for edge in row.boundaries) or ABSENT,
        )
        for row in [*optimal, *others]
    )
    marked = frozenset(range(len(optimal)))
    return Table("Where to cut: the optimum and the usual rules", columns, rows, marked)


def interval(lo: int, hi: int) -> str:
    """A bucket as text, half-open: ``[770, 1,216)``."""
    return f"[{lo:,}, {hi:,})"
