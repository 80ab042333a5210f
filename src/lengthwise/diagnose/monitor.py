"""What the log of a ``BatchMonitor`` tells of a training loop of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.core.wording import percent
from lengthwise.diagnose.advice import LEAST_GAIN, NOTHING, USUAL_EFFICIENCY, Advice
from lengthwise.diagnose.records import figure

if TYPE_CHECKING:
    from lengthwise.diagnose.records import RunRecords


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """A loop's tokens; its records have no seconds by device.

    Attributes:
        real_tokens: of the batches on record.
        padded_tokens: the same with padding.
        tokens_per_second: real ones, mean of what the records tell; None where none does.
    """

    real_tokens: int
    padded_tokens: int
    tokens_per_second: float | None

    @property
    def efficiency(self) -> float:
        """Real over padded tokens."""
        return self.real_tokens / self.padded_tokens if self.padded_tokens else 1.0


def loop_figures(records: RunRecords) -> LoopFigures:
    """Add up a monitor's records."""
    real, padded = (
        int(sum(figure(row, name) or 0.0 for row in records.steps))
        for name in ("real_tokens", "padded_tokens")
    )
    known = [figure(row, "tokens_per_second") for row in records.steps]
    rates = [rate for rate in known if rate is not None]
    return LoopFigures(real, padded, sum(rates) / len(rates) if rates else None)


def loop_advice(loop: LoopFigures) -> Advice:
    """Less padding, where there is some: time goes with padded tokens, about."""
    gain = USUAL_EFFICIENCY / loop.efficiency - 1
    if gain < LEAST_GAIN:
        return NOTHING
    return Advice(
        "padding",
        "plan batches with the default strategy; `lengthwise compare` shows what each costs",
        gain,
        f"{percent(1 - loop.efficiency)} of the tokens are padding; the default plan usually has "
        f"{percent(1 - USUAL_EFFICIENCY)}, and time goes with padded tokens, about.",
    )
