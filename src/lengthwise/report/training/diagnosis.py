"""A diagnosis in sentences and tables; the page and the terminal show the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from lengthwise.report.tables import Column, Table
from lengthwise.report.words import ABSENT, Term, count, share, significant

if TYPE_CHECKING:
    from lengthwise.diagnose import Cause, Comparison, Diagnosis
    from lengthwise.diagnose.plan import StepContents

LEAST_SHARE = 0.0005
"""Of the time; causes below are left out of a table, but never what is not explained."""


def verdict(found: Diagnosis) -> str:
    """How fast the run was and, where that was predicted, how that compares."""
    if found.loop is not None:
        rate = found.loop.tokens_per_second
        speed = "" if rate is None else f", {count(rate)} real tokens a second"
        return f"{share(found.loop.efficiency)} of the tokens were real{speed}."
    if found.account is None:
        return f"{count(found.num_steps)} optimiser steps; where their time went is not on record."
    measured = f"The run learnt from {count(found.account.tokens_per_second)} real tokens a second"
    compared = found.comparison
    if compared is None:
        return f"{measured}; nothing was predicted."
    promised = f"{measured}, {share(compared.ratio)} of the {count(compared.predicted)} predicted"
    if compared.low is None or compared.high is None:
        return f"{promised}."
    place = "inside" if compared.is_inside else "outside"
    return f"{promised} ({place} {count(compared.low)} to {count(compared.high)})."


def comparison_table(compared: Comparison) -> Table:
    """From the predicted rate to the measured one, cause by cause."""
    columns = (
        Column("cause", "cause", numeric=False),
        Column("seconds", "seconds"),
        Column("tokens a second", "tokens/s"),
    )
    rows = [
        (one.label, _signed(one.seconds), _signed(one.tokens_per_second or 0.0, 0))
        for one in _shown(compared.causes, compared.measured_seconds)
    ]
    first = ("predicted", _fixed(compared.predicted_seconds), count(compared.predicted))
    last = ("measured", _fixed(compared.measured_seconds), count(compared.measured))
    return Table("From predicted to measured", columns, (first, *rows, last))


def time_table(found: Diagnosis) -> Table:
    """All the run's time by cause."""
    account = found.account
    assert account is not None
    columns = (
        Column("cause", "cause", numeric=False),
        Column("seconds", "seconds"),
        Column("share of the time", "share"),
    )
    rows = [
        (one.label, _fixed(one.seconds), share(round(one.seconds / account.seconds, 6)))
        for one in _shown(found.time, account.seconds)
    ]
    whole = ("all", _fixed(account.seconds), share(1.0))
    return Table("Where the time went", columns, (*rows, whole))


def device_table(found: Diagnosis) -> Table:
    """What each device did, as shares of the run's time."""
    account = found.account
    assert account is not None
    waits = dict.fromkeys(name for one in account.devices.values() for name in one.waits)
    words = {"reading": "reading", "room": "no room", "work": "no work", "copying": "copying"}
    words |= {"starting": "start", "samples": "no samples"}
    columns = (
        Column("device", "device", numeric=False),
        Column("at work", "at work"),
        *(Column(words[name], words[name]) for name in waits),
    )
    rows = tuple(
        (
            one.name,
            share(one.busy / account.seconds),
            *(
                share(one.waits[name] / account.seconds) if name in one.waits else ABSENT
                for name in waits
            ),
        )
        for one in account.devices.values()
    )
    return Table("Devices, shares of the time", columns, rows)


def bottleneck(found: Diagnosis) -> list[str]:
    """What held the run up: over all of it, then by time where it changed."""
    lines = [f"{_capital(found.bottleneck)}."] if found.bottleneck else []
    if len(found.phases) > 1:
        lines += [f"{phase.sentence}." for phase in found.phases]
    return lines


def jumps(found: Diagnosis) -> str:
    """How the loss jumps, and how much of it is lengths; empty where that is not known."""
    jumpy = found.jumps
    if jumpy is None:
        return ""
    text = (
        f"A step's loss lies {significant(jumpy.deviation, 2)} from its level (root mean square of "
        f"{count(jumpy.num_steps)} records). Of the variance {_share(jumpy.share_between)} is "
        f"between length classes, the mixture of lengths in the step, and "
        f"{_share(1 - jumpy.share_between)} within them"
    )
    return f"{text}."


def class_table(found: Diagnosis) -> Table:
    """How far each length class lies above the level."""
    assert found.jumps is not None
    columns = (Column("length class", "class", numeric=False), Column("loss above level", "above"))
    rows = tuple(
        (label, _signed(offset, 3))
        for label, offset in zip(found.classes, found.jumps.offsets.tolist(), strict=True)
    )
    return Table("Loss by length class", columns, rows)


def spike_table(found: Diagnosis) -> Table:
    """Steps whose loss leapt, with what was in them."""
    columns = (
        Column("step", "step", numeric=False),
        Column("loss", "loss"),
        Column("usual", "usual"),
        Column("deviations above", "above"),
        Column("highest in", "highest in", numeric=False),
        Column("samples", "samples"),
        Column("lengths", "lengths"),
        Column("batches of the target", "batches", priority=1),
    )
    rows = tuple(
        (
            count(spike.step),
            significant(spike.loss, 4),
            significant(spike.usual, 4),
            f"{spike.score:.1f}",
            spike.length_words,
            *_contents(found.contents.get(spike.step)),
        )
        for spike in found.spikes
    )
    return Table("Spikes of the loss", columns, rows).without_empty_columns()


def sample_table(found: Diagnosis) -> Table | None:
    """Samples of the steps that stand out; None where they are not known."""
    rows = tuple(
        (
            count(step),
            str(sample.sample_id),
            count(sample.num_tokens),
            f"{PurePath(sample.file).name}, row {sample.row:,}",
        )
        for step, contents in found.contents.items()
        for sample in contents.samples
    )
    columns = (
        Column("step", "step", numeric=False),
        Column("sample", "sample"),
        Column("tokens", "tokens"),
        Column("where", "where", numeric=False),
    )
    return Table("Samples behind them, ten a step", columns, rows) if rows else None


def skipped(found: Diagnosis) -> str:
    """Steps without a finite loss; empty without any."""
    if not found.skipped:
        return ""
    shown = ", ".join(f"{step:,}" for step in found.skipped[-10:])
    more = "the last ten: " if len(found.skipped) > 10 else ""
    number = f"{count(len(found.skipped))} step{'s' if len(found.skipped) > 1 else ''}"
    return f"Loss or gradient was not finite in {number}: {more}{shown}."


def advice(found: Diagnosis) -> str:
    """What to change, what it is expected to bring, and why."""
    one = found.advice
    if one.kind == "nothing":
        return f"{_capital(one.change)}: {one.reason}"
    return f"{_capital(one.change)}: {one.expectation} expected, since {one.reason}"


@dataclass(frozen=True, slots=True)
class DiagnosisSection:
    """What the page says of a diagnosis, in the order of the page.

    Attributes:
        verdict: how fast, against what was predicted.
        advice: what to change.
        bottleneck: what held the run up, in sentences.
        tables: of the time.
        loss: sentences about the loss.
        loss_tables: by class, spikes, samples.
        terms: what the causes mean.
        notes: what is missing.
    """

    verdict: str
    advice: str
    bottleneck: tuple[str, ...]
    tables: tuple[Table, ...]
    loss: tuple[str, ...]
    loss_tables: tuple[Table, ...]
    terms: tuple[Term, ...]
    notes: tuple[str, ...]


def section(found: Diagnosis) -> DiagnosisSection:
    """Everything that the page says."""
    samples = sample_table(found)
    return DiagnosisSection(
        verdict=verdict(found),
        advice=advice(found),
        bottleneck=tuple(bottleneck(found)),
        tables=tuple(time_tables(found)),
        loss=tuple(filter(None, (jumps(found), skipped(found)))),
        loss_tables=(
            *((class_table(found),) if found.jumps else ()),
            *((spike_table(found),) if found.spikes else ()),
            *((samples,) if samples else ()),
        ),
        terms=cause_terms(found),
        notes=found.notes,
    )


def time_tables(found: Diagnosis) -> list[Table]:
    """Those of the run's time; none where it is not on record."""
    if found.account is None:
        return []
    compared = [comparison_table(found.comparison)] if found.comparison else []
    return [*compared, time_table(found), device_table(found)]


def cause_terms(found: Diagnosis) -> tuple[Term, ...]:
    """What the causes that are shown mean."""
    account = found.account
    if account is None:
        return ()
    compared = found.comparison.causes if found.comparison else ()
    shown = {one.name: one for one in _shown((*compared, *found.time), account.seconds)}
    return tuple(Term(one.label, one.meaning) for one in shown.values())


def _shown(causes: tuple[Cause, ...], seconds: float) -> list[Cause]:
    least = LEAST_SHARE * seconds
    return [one for one in causes if abs(one.seconds) >= least or one.name == "unexplained"]


def _contents(contents: StepContents | None) -> tuple[str, str, str]:
    if contents is None:
        return ABSENT, ABSENT, ABSENT
    return (
        count(contents.num_samples),
        f"{contents.shortest:,} to {contents.longest:,}",
        count(len(contents.batches)),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _share(value: float) -> str:
    return share(max(0.0, min(1.0, value)), 0)


def _fixed(seconds: float) -> str:
    return f"{seconds:,.1f}".replace("-", "−")


def _signed(value: float, digits: int = 1) -> str:
    text = f"{value:+,.{digits}f}"
    return text[1:] if float(text.replace(",", "")) == 0 else text.replace("-", "−")
