"""What the page's sections say: facts, plots with their text alternatives, and the origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.report import specs, tables
from lengthwise.report.bins import bin_histogram
from lengthwise.report.tables import Column, Table
from lengthwise.report.words import count, measure, renewal, share, significant

if TYPE_CHECKING:
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.report.data import Provenance, ReportData
    from lengthwise.report.theme import Spec


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of the recommended plan, with what it is compared to."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, what it shows in one sentence, and its numbers as a table where none stands near."""

    name: str
    title: str
    summary: str
    spec: Spec
    numbers: Table | None = None


def facts(data: ReportData) -> tuple[Fact, ...]:
    """The recommended plan's main figures beside the random plan's; what is unknown is left out."""
    best, base = data.recommended, data.reference
    if best is None:
        return ()
    found = [
        Fact(
            "efficiency",
            share(best.efficiency),
            f"random: {share(base.efficiency)}" if base else "",
        ),
        Fact(
            "batches an epoch",
            count(best.num_batches),
            f"random: {count(base.num_batches)}" if base else "",
        ),
    ]
    if best.repeat_rate is not None:
        found.append(Fact("repeat rate", significant(best.repeat_rate), renewal(best.repeat_rate)))
    if best.design_effect is not None:
        note = "of an optimiser step, in length; random samples: 1"
        found.append(Fact("design effect", measure(best.design_effect), note))
    return tuple(found)


def setting(data: ReportData) -> str:
    """The data set and the limits in one line."""
    limits = data.limits
    parts = [
        f"{count(data.num_samples)} samples",
        f"{count(data.real_tokens)} tokens",
        f"at most {count(limits.max_tokens)} padded tokens a batch",
    ]
    if limits.max_batch_size is not None:
        parts.append(f"at most {count(limits.max_batch_size)} samples a batch")
    if limits.pad_to_multiple_of > 1:
        parts.append(f"padded to multiples of {count(limits.pad_to_multiple_of)}")
    if limits.batch_size_multiple_of > 1:
        parts.append(f"batch sizes in multiples of {count(limits.batch_size_multiple_of)}")
    step = data.num_replicas * data.accumulation_steps
    if step > 1:
        replicas = f"{count(data.num_replicas)} replica{'s' if data.num_replicas > 1 else ''}"
        parts.append(
            f"{count(step)} batches an optimiser step ({replicas} × "
            f"{count(data.accumulation_steps)} accumulated)"
        )
    return " · ".join(parts)


def plots(data: ReportData) -> dict[str, Plot]:
    """Every plot that the data allows, by name."""
    found = [
        Plot(
            "efficiency",
            "Efficiency",
            "Share of processed tokens that are real. The empty part of a bar is padding.",
            specs.efficiency_bars(data),
        ),
        Plot(
            "batches",
            "Batches an epoch",
            "Fewer batches, fewer steps. No padded plan can beat the bound.",
            specs.batch_bars(data),
        ),
    ]
    # Where no plan pads anything, there is nothing to trade and no line to draw.
    if any(point.efficiency < 1 for point in data.frontier):
        found.append(_frontier(data))
    if data.histogram is not None:
        found.append(_histogram(data, data.histogram))
    if data.bucketing is not None and data.bucketing.buckets:
        found += [
            Plot(
                "bucket-efficiency",
                "Efficiency of each bucket",
                "The empty part of a bar is that bucket's padding.",
                specs.bucket_efficiency(data.bucketing),
            ),
            Plot(
                "bucket-padding",
                "Share of all padding",
                "Where a bar passes its tick, the bucket pads more than its part of the tokens.",
                specs.bucket_padding(data.bucketing),
                tables.bucket_table(data.bucketing),
            ),
        ]
    if data.baselines:
        found.append(
            Plot(
                "baselines",
                "Expected efficiency of each set of boundaries",
                "All with the same limits; the optimum is for its own number of buckets.",
                specs.baseline_bars(data),
            )
        )
    return {plot.name: plot for plot in found}


def recommendation(data: ReportData) -> tuple[str, str]:
    """The recommended plan's label as the start of a sentence, and why it is recommended."""
    if data.recommended is None:
        return "", data.reason
    label = data.recommended.label
    reason = data.reason.removeprefix(f"{label}: ")
    return label[:1].upper() + label[1:], reason[:1].upper() + reason[1:]


def _frontier(data: ReportData) -> Plot:
    thinned = ""
    if data.frontier_samples and data.frontier_samples < data.num_samples:
        thinned = (
            f" Measured on {count(data.frontier_samples)} samples, an even thinning of the data "
            "set, where pairs meet again more often by the same factor in every family."
        )
    return Plot(
        "frontier",
        "Efficiency against repeat rate",
        "Up is less padding, left is more renewal between epochs, so the upper left is best. The "
        "number at a point is its parameter: buckets K, window size W, or a pool's target."
        + thinned,
        specs.frontier_plot(data.frontier, data.recommended),
        tables.frontier_table(data.frontier),
    )


def _histogram(data: ReportData, histogram: LengthHistogram) -> Plot:
    boundaries = data.bucketing.boundaries if data.bucketing else ()
    bins = bin_histogram(histogram)
    rows = tuple((row["range_text"], row["samples_text"], row["share_text"]) for row in bins.rows)
    columns = (
        Column("tokens", "tokens", numeric=False),
        Column("samples", "samples"),
        Column("share of samples", "share"),
    )
    middle, top = histogram.quantile(0.5), histogram.quantile(0.99)
    return Plot(
        "histogram",
        "Lengths",
        f"Shortest {count(histogram.shortest)}, median {count(middle)}, mean "
        f"{count(histogram.mean)}, 99th percentile {count(top)}, longest "
        f"{count(histogram.longest)} tokens.",
        specs.histogram_plot(histogram, boundaries),
        Table(f"Samples by length, in {len(rows)} bins", columns, rows),
    )


def origin(data: ReportData, versions: str) -> tuple[tuple[str, str], ...]:
    """Name and value of everything needed to make the report again."""
    return provenance_rows(data.provenance, versions)


def provenance_rows(made: Provenance, versions: str) -> tuple[tuple[str, str], ...]:
    """The same of any report; what is unknown is left out."""
    version = f"lengthwise {made.version}" if made.version else ""
    entries = (
        ("source", made.source),
        ("seed", made.seed),
        ("versions", ", ".join(part for part in (version, versions) if part)),
        ("created", made.created),
    )
    return tuple((name, value) for name, value in entries if value)
