"""Numbers as text, and the sentences around them; shared by the page and the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.report.data import ReportData, StrategyRow

ABSENT = "–"
_SMALL_GAIN = 0.001


def share(value: float | None, digits: int = 1) -> str:
    """A share as a percentage: ``0.9735`` gives ``97.4 %``.

    What is below 1 does not round up to 100 %, nor what is above 0 down to 0: such values get more
    than ``digits`` decimals.
    """
    if value is None:
        return ABSENT
    for decimals in range(digits, 4):
        text = f"{100 * value:.{decimals}f}"
        if (float(text) < 100 or value >= 1) and (float(text) > 0 or value <= 0):
            return f"{text} %"
    return "> 99.999 %" if value > 0.5 else "< 0.001 %"


def count(value: float | None) -> str:
    """A count with thousands separators; an expected count is rounded."""
    return ABSENT if value is None else f"{round(value):,}"


def significant(value: float | None, digits: int = 2) -> str:
    """``digits`` significant digits without an exponent: ``0.000762`` gives ``0.00076``."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def measure(value: float | None) -> str:
    """Two significant digits of a figure whose thousandths no longer matter."""
    return "< 0.001" if value is not None and 0 < value < 0.001 else significant(value)


def signed(value: float | None) -> str:
    """A correlation: sign and two decimals; what rounds to nothing has no sign."""
    if value is None:
        return ABSENT
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it."""
    if value is None:
        return ABSENT
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{significant(value * scale)} {unit}"
    return f"{significant(value)} s" if value < 100 else f"{value:,.0f} s"


def headline(data: ReportData) -> str:
    """What padding costs and what the recommended plan gets, in one sentence with numbers."""
    best, base = data.recommended, data.reference
    if best is None or best.efficiency is None:
        return _headline_without_recommendation(data)
    plan = f"the recommended plan ({best.label})"
    if base is None or base.efficiency is None or base.name == best.name:
        return (
            f"{plan[0].upper()}{plan[1:]} reaches {share(best.efficiency)} efficiency: "
            f"{share(1 - best.efficiency)} of the tokens it processes are padding."
        )
    cost = f"Batched at random, {share(1 - base.efficiency)} of all tokens processed are padding"
    if best.efficiency - base.efficiency < _SMALL_GAIN:
        return f"{cost}; {plan} has {share(1 - best.efficiency)}, so there is little to win here."
    return (
        f"{cost}; {plan} brings that down to {share(1 - best.efficiency)} and runs an epoch in "
        f"{_batches(best, base)}."
    )


def _batches(best: StrategyRow, base: StrategyRow) -> str:
    ours, theirs = round(best.num_batches), round(base.num_batches)
    noun = "batch" if ours == 1 else "batches"
    if ours == theirs or not theirs:
        return f"{ours:,} {noun}"
    change = f"{share(abs(1 - ours / theirs))} {'fewer' if ours < theirs else 'more'}"
    return f"{ours:,} {noun} instead of {theirs:,} ({change})"


def _headline_without_recommendation(data: ReportData) -> str:
    rows = [row for row in data.strategies if not row.is_bound and row.efficiency is not None]
    if not rows:
        return f"{data.num_samples:,} samples; no strategy's efficiency was measured."
    best = max(rows, key=lambda row: row.efficiency or 0.0)
    return f"The highest efficiency is {share(best.efficiency)} ({best.label})."


def renewal(rate: float | None) -> str:
    """A repeat rate in words: how often a pair of batch mates meets again."""
    if rate is None:
        return ""
    if rate == 0:
        return "no two samples that shared a batch share one again in the next epoch"
    if rate >= 1:
        return "every two samples that shared a batch share one again in the next epoch"
    if rate > 0.1:
        return f"{share(rate)} of batch mates meet again in the next epoch"
    return f"one in {round(1 / rate):,} pairs of batch mates meets again in the next epoch"


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the report and its exact meaning."""

    name: str
    meaning: str


GLOSSARY = (
    Term(
        "padded tokens",
        "Of one batch: its number of samples times its longest sample, the longest rounded up to "
        "pad_to_multiple_of. Of an epoch: the sum over its batches. It is what the device "
        "processes.",
    ),
    Term(
        "efficiency",
        "Real tokens divided by padded tokens, over the epoch. 1 minus efficiency is the share of "
        "padding.",
    ),
    Term(
        "utilization",
        "Real tokens divided by (number of batches times max_tokens). The number of batches "
        "follows from it, so it stands beside efficiency: batches that are half empty but barely "
        "padded have a high efficiency and a low utilization.",
    ),
    Term(
        "bucket, boundaries",
        "A bucket is a length class [lo, hi): lengths from lo up to, but not including, hi. "
        "Boundaries are the K + 1 increasing numbers that cut the lengths into K buckets.",
    ),
    Term(
        "window",
        "That many shuffled samples are sorted by length together and packed into batches; then "
        "the next window follows. Every epoch shuffles anew.",
    ),
    Term(
        "pool",
        "Samples, longest first, are dealt at random to the free slots of a pool of open batches. "
        "Its size is chosen so that the epoch reaches a target efficiency.",
    ),
    Term(
        "repeat rate",
        "Of all pairs of samples that share a batch in one epoch, the share that share a batch "
        "again in the next epoch. 1 means frozen batches.",
    ),
    Term(
        "order correlation",
        "Correlation of the mean length of a batch with that of the next batch (lag 1). Near 0: "
        "no trend. Near 1: training walks up and down a stair of lengths.",
    ),
    Term(
        "spread in a batch",
        "Standard deviation of length inside a batch, averaged over the batches, divided by the "
        "data set's. About 1: a batch is as mixed as the data. 0: all of one length.",
    ),
    Term(
        "design effect",
        "Of an optimiser step with S real tokens in N samples: the mean of (S − μN)² divided by "
        "σ² times the mean of N, where μ and σ² are mean and variance of length over the data set. "
        "1: as representative in length as N random samples. 27: as noisy as 27 times fewer "
        "random samples. Below 1: better than random. It speaks about length, not about the loss.",
    ),
    Term(
        "tokens, samples per step (CV)",
        "Standard deviation divided by mean, over optimiser steps, of the real tokens and of the "
        "number of samples in a step.",
    ),
    Term(
        "shapes",
        "Distinct pairs (number of samples, padded length) over the epoch: how many graphs a "
        "compiler with static shapes would have to build.",
    ),
    Term(
        "replica balance",
        "Of the batches that run at the same time on the replicas: mean padded tokens divided by "
        "the largest, averaged over the steps. 1: no replica waits. 0.9: a tenth of the machine's "
        "time is spent waiting.",
    ),
    Term(
        "packed bound",
        "Samples laid end to end with no padding at all. No plan of padded batches needs fewer "
        "batches than this; it is a bound, not a plan.",
    ),
)
"""The words of the report with exact definitions, in the order in which they are needed."""
