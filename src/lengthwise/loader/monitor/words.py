"""A monitor's summary in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.core.wording import duration

if TYPE_CHECKING:
    from collections.abc import Mapping


def summary_line(summary: Mapping[str, Any]) -> str:
    """One line, of what is known.

    Args:
        summary: as ``BatchMonitor.summary`` makes it.
    """
    parts = [_place(summary)]
    rate, seconds = summary["tokens_per_second"], summary["eta_seconds"]
    if rate is not None:
        parts.append(f"{rate:,.0f} tokens/s")
    if summary["efficiency"] is not None:
        parts.append(f"efficiency {100 * summary['efficiency']:.1f} %")
    if seconds is not None:
        parts.append(f"{duration(seconds)} left")
    if summary["loss"] is not None:
        parts.append(f"loss {summary['loss']:.4g}, adjusted {summary['adjusted_loss']:.4g}")
    if summary["jumps_from_buckets"] is not None:
        parts.append(f"buckets explain {100 * summary['jumps_from_buckets']:.0f} % of its jumps")
    if summary["num_non_finite_losses"]:
        parts.append(f"{summary['num_non_finite_losses']:,} losses not finite")
    return "; ".join(parts)


def _place(summary: Mapping[str, Any]) -> str:
    if summary["epoch"] is None:
        return f"step {summary['step']:,}"
    done, steps = summary["epoch_step"], summary["epoch_steps"]
    return f"epoch {summary['epoch']}, step {done:,} of {steps:,}"
