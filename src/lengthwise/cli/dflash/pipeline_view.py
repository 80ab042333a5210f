"""What a person sees of a pipeline: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from lengthwise.cli.dflash.train_view import TrainView
from lengthwise.cli.output import LOG_SECONDS, print_note
from lengthwise.core.wording import duration, memory, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

    from lengthwise.dflash.training.expect import Expectation
    from lengthwise.dflash.training.log import RunLog
    from lengthwise.dflash.training.progress import Position, StepFacts
    from lengthwise.dflash.update import StepResult
    from lengthwise.pipeline.flow import Flow
    from lengthwise.pipeline.telemetry import Telemetry

BAR_WIDTH = 20
BLOCKS = " ▏▎▍▌▋▊▉█"

Row = tuple[str, float | None, str]
"""A name, how full its bar is from 0 to 1, and the same in words."""


class PipelineView(TrainView):
    """Passes everything on to the log, and shows some of it on standard error.

    Args:
        total_steps: optimiser steps of the whole run.
        log: takes the records.
        telemetry: follows how things flow.
        num_done: steps that were made before.
        quiet: show warnings only.
    """

    def __init__(
        self, total_steps: int, log: RunLog, telemetry: Telemetry, *, num_done: int, quiet: bool
    ) -> None:
        """Nothing is shown yet."""
        super().__init__(total_steps, log, quiet=quiet)
        self._telemetry = telemetry
        self._done = num_done
        self._flow: Flow | None = None
        self._forecast: dict[str, float] = {}
        self._live: Live | None = None
        self._plain = time.monotonic()

    def __enter__(self) -> Self:
        """Begin to show."""
        super().__enter__()
        self._plain = time.monotonic() + LOG_SECONDS
        return self

    def __exit__(self, *exception: object) -> None:
        """Write the last record; leave the table where it is."""
        if self._telemetry.has_news:
            self._write()
        if self._live is not None:
            self._live.update(self._table())
            self._live.stop()

    def expected(self, expectation: Expectation) -> None:
        """Say what the run can expect, and keep it beside what it does."""
        super().expected(expectation)
        self._forecast = {
            "flow_expected_tokens_per_second": expectation.tokens_per_second,
            "flow_expected_low": expectation.low,
            "flow_expected_high": expectation.high,
        }

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """Count a step in."""
        self._telemetry.stepped(facts)
        self._done = position.num_steps
        super().stepped(position, result, facts)

    def flowed(self, flow: Flow) -> None:
        """Show how things flow."""
        self._flow = flow
        self._telemetry.flowed(flow)
        if self._telemetry.due():
            self._write()
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() >= self._plain:
            self._plain = time.monotonic() + LOG_SECONDS
            for line in plain_lines(self._done, self._total, self.log.last, self._telemetry, flow):
                print_note(line)

    def _write(self) -> None:
        self.log.write({"step": self._done, **self._telemetry.record(), **self._forecast})

    def _show(self, done: int) -> None:
        """Nothing: the table follows the clock, not the steps."""

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stderr)
        self._live = Live(
            self._table(), console=console, refresh_per_second=4, redirect_stderr=True
        )
        self._live.start()

    def _table(self) -> RenderableType:
        return live_table(self._done, self._total, self.log.last, self._telemetry, self._flow)


def live_table(
    done: int, total: int, last: dict[str, Any], telemetry: Telemetry, flow: Flow | None
) -> RenderableType:
    """The whole display.

    Args:
        done: optimiser steps made.
        total: of the run.
        last: record of the newest step; empty before the first.
        telemetry: how things flow.
        flow: the newest counts; None before the first.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if flow is None:
        return Text("models load on every device")
    head = Text(", ".join(_progress(done, total, telemetry)), style="bold")
    bars = Table.grid(padding=(0, 2, 0, 0))
    for name, share, words in _rows(done, total, telemetry, flow):
        bars.add_row(name, Text(bar(share), style="cyan"), words)
    parts: list[RenderableType] = [head, bars]
    if last:
        parts.append(_figures_table(last, telemetry, flow))
    parts.append(Text(_bottleneck(telemetry), style="yellow"))
    return Group(*parts)


def plain_lines(
    done: int, total: int, last: dict[str, Any], telemetry: Telemetry, flow: Flow
) -> Iterator[str]:
    """The same in two lines, and a third one that names the bottleneck."""
    figures = [f"{name} {text}" for name, text in _figures(last, telemetry, flow) if text != "-"]
    yield ": ".join(
        filter(None, (", ".join(_progress(done, total, telemetry)), ", ".join(figures)))
    )
    shares = [
        f"{name} {words}"
        for name, _, words in _rows(done, total, telemetry, flow)
        if name != "steps"
    ]
    yield f"  {'; '.join(shares)}"
    if telemetry.bottleneck is not None:
        yield f"  {telemetry.bottleneck.sentence}"


def bar(share: float | None) -> str:
    """A bar of eighths of characters; empty where nothing is known."""
    eighths = round(min(1.0, max(0.0, share or 0.0)) * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[rest] if rest else "")).ljust(BAR_WIDTH, "·")


def _progress(done: int, total: int, telemetry: Telemetry) -> list[str]:
    parts = [f"step {done:,} of {total:,}"]
    if telemetry.eta_seconds is not None and done < total:
        parts.append(f"{duration(telemetry.eta_seconds)} left")
    return parts


def _rows(done: int, total: int, telemetry: Telemetry, flow: Flow) -> list[Row]:
    rows: list[Row] = [("steps", done / total if total else None, f"{done:,} of {total:,}")]
    for device in telemetry.devices:
        share = device.recent
        rows.append((device.name, share, "no work yet" if share is None else _busy(share)))
    room = flow.prefetch_room
    used = flow.pages_used / flow.num_pages if flow.num_pages else None
    size = memory(flow.pages_used * telemetry.facts.page_bytes)
    rows += [
        ("prefetch", flow.prefetch / room if room else None, f"{flow.prefetch} of {room} batches"),
        ("hidden states", min(1.0, flow.hidden_states / 4), f"{flow.hidden_states} steps ready"),
        ("arena", used, f"{flow.pages_used:,} of {flow.num_pages:,} pages, {size}"),
    ]
    return rows


def _busy(share: float) -> str:
    return f"{percent(share, 0)} busy"


def _figures(last: dict[str, Any], telemetry: Telemetry, flow: Flow) -> list[tuple[str, str]]:
    rates = telemetry.rates()
    efficiency = flow.real_tokens / flow.padded_tokens if flow.padded_tokens else None
    figures = [
        ("loss", _number(last.get("loss"), ".4f")),
        ("accuracy", _number(last.get("accuracy"), ".3f")),
        ("streak", _number(last.get("streak"), ".2f")),
        ("learning rate", _number(last.get("learning_rate"), ".2e")),
        ("gradient norm", _number(last.get("grad_norm"), ".3g")),
        ("tokens/s", _number(rates["tokens_per_second"], ",.0f")),
        ("with padding", _number(rates["padded_tokens_per_second"], ",.0f")),
        (
            "efficiency",
            "-"
            if efficiency is None
            else f"{percent(efficiency)} (plan {percent(telemetry.facts.planned_efficiency)})",
        ),
    ]
    figures += [("run again", f"{flow.num_reruns:,}")] if flow.num_reruns else []
    figures += [("left out", f"{flow.num_bad:,}")] if flow.num_bad else []
    return figures


def _figures_table(last: dict[str, Any], telemetry: Telemetry, flow: Flow) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    figures = _figures(last, telemetry, flow)
    for place in range(0, len(figures), 3):
        cells = [f"{name} {text}" for name, text in figures[place : place + 3]]
        table.add_row(*cells)
    return table


def _bottleneck(telemetry: Telemetry) -> str:
    found = telemetry.bottleneck
    return "" if found is None else found.sentence


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
