"""The histogram cut into few enough bars to look at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.report.words import count, share

if TYPE_CHECKING:
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import Int64Array

MOST_BARS = 200
_LOG_BARS = 80
_LONG_TAIL = 12
"""A longest length this many times the median makes the axis logarithmic."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Bars from left to right; every sample is in exactly one."""

    rows: list[dict[str, Any]]
    is_log: bool


def bin_histogram(histogram: LengthHistogram, most_bars: int = MOST_BARS) -> Bins:
    """Cut a histogram into at most ``most_bars`` bins with whole-number edges.

    Each row has ``lo`` and ``hi`` (half-open, tokens), ``samples``, ``height`` and texts for the
    tooltip. ``height`` is ``samples`` on a linear axis, where bins are equally wide but for the
    last, and samples per doubling of length on a logarithmic one.
    """
    is_log = histogram.longest > _LONG_TAIL * histogram.quantile(0.5)
    edges = _edges(histogram.shortest, histogram.longest + 1, most_bars, is_log=is_log)
    first = np.searchsorted(histogram.lengths, edges)
    cumulative = np.concatenate(([0], np.cumsum(histogram.counts)))
    samples = np.diff(cumulative[first])
    rows = []
    for lo, hi, number in zip(edges[:-1], edges[1:], samples, strict=True):
        doublings = math.log2(hi / lo) if is_log else 1.0
        rows.append(
            {
                "lo": int(lo),
                "hi": int(hi),
                "samples": int(number),
                "height": float(number / doublings),
                "range_text": f"{lo:,}" if hi - lo == 1 else f"{lo:,} to {hi - 1:,}",
                "samples_text": count(int(number)),
                "share_text": share(int(number) / histogram.num_samples),
            }
        )
    return Bins(rows, is_log)


def _edges(lo: int, hi: int, most_bars: int, *, is_log: bool) -> Int64Array:
    if is_log:
        smooth = np.geomspace(lo, hi, min(most_bars, _LOG_BARS) + 1)
        return np.unique(np.rint(smooth).astype(np.int64))
    width = -(-(hi - lo) // most_bars)
    return np.append(np.arange(lo, hi, width, dtype=np.int64), hi)
