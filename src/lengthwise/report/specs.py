"""Plots as Vega-Lite specs: pure functions from report data to plain dicts.

Every spec has the width of its container and colours by name (:mod:`lengthwise.report.theme`);
:func:`lengthwise.report.plots.render_plot` draws one as a picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.report.bins import bin_histogram
from lengthwise.report.frontier import frontier_plot
from lengthwise.report.placing import log_ticks
from lengthwise.report.tables import interval
from lengthwise.report.theme import colour, frame
from lengthwise.report.words import count, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.report.data import BoundariesRow, BucketRow, ReportData, StrategyRow
    from lengthwise.report.theme import Spec

__all__ = [
    "baseline_bars",
    "batch_bars",
    "bucket_efficiency",
    "bucket_padding",
    "efficiency_bars",
    "frontier_plot",
    "histogram_plot",
]

_ROW_HEIGHT = 46
_MOST_BUCKET_HEIGHT = 640


def efficiency_bars(data: ReportData) -> Spec:
    """One bar a strategy: efficiency, on a track whose empty rest is the padding."""
    rows = [
        _bar(row, row.efficiency, share(row.efficiency))
        for row in data.strategies
        if row.efficiency is not None
    ]
    return _bars(rows, most=1.0, track=True)


def batch_bars(data: ReportData) -> Spec:
    """One bar a strategy: batches an epoch takes."""
    rows = [_bar(row, row.num_batches, count(row.num_batches)) for row in data.strategies]
    return _bars(rows, most=max([row["value"] for row in rows] + [1.0]), track=False)


def baseline_bars(data: ReportData) -> Spec:
    """One bar a rule for boundaries: efficiency; the optimum is marked."""
    optimal = [data.bucketing] if data.bucketing else []
    rows = [
        {
            "label": row.name,
            "value": row.efficiency,
            "text": share(row.efficiency, 2),
            "kind": "marked" if row in optimal else "plain",
        }
        for row in [*optimal, *sorted(data.baselines, key=lambda row: -row.efficiency)]
    ]
    return _bars(rows, most=1.0, track=True)


def _bar(row: StrategyRow, value: float, text: str) -> dict[str, Any]:
    kind = "marked" if row.recommended else "bound" if row.is_bound else "plain"
    note = {"marked": " (recommended)", "bound": " (bound)", "plain": ""}[kind]
    return {
        "label": row.label.removesuffix(note) + note,
        "value": value,
        "text": text,
        "kind": kind,
    }


def _bars(rows: list[dict[str, Any]], *, most: float, track: bool) -> Spec:
    """Bars under their labels, so that long labels cost no width on a phone."""
    rows = [row | {"place": place} for place, row in enumerate(rows)]
    y = {"field": "place", "type": "ordinal", "axis": None, "scale": {"padding": 0}}
    full = {"type": "quantitative", "axis": None, "scale": {"domain": [0, most], "nice": False}}
    bar = {"type": "bar", "height": 12, "yOffset": 8, "cornerRadius": 2}
    text = {"type": "text", "yOffset": -8, "fontSize": 13, "baseline": "middle"}
    fill = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        "scale": {
            "domain": ["marked", "plain", "bound"],
            "range": [colour("accent"), colour("bar"), colour("axis")],
        },
    }
    marked = [{"filter": "datum.kind === 'marked'"}]
    others = [{"filter": "datum.kind !== 'marked'"}]
    tooltip = [{"field": "label", "title": "plan"}, {"field": "text", "title": "value"}]
    layers: list[Spec] = []
    if track:
        ground = bar | {"color": colour("track")}
        layers.append(
            {"mark": ground, "encoding": {"x": full | {"datum": most}, "x2": {"datum": 0}}}
        )
    layers.append(
        {
            "mark": bar,
            "encoding": {"x": full | {"field": "value"}, "color": fill, "tooltip": tooltip},
        }
    )
    for keep, weight in ((marked, "bold"), (others, "normal")):
        styled = text | {"fontWeight": weight}
        left = {"x": full | {"datum": 0}, "text": {"field": "label"}}
        right = {"x": full | {"datum": most}, "text": {"field": "text"}}
        layers.append({"transform": keep, "mark": styled | {"align": "left"}, "encoding": left})
        layers.append({"transform": keep, "mark": styled | {"align": "right"}, "encoding": right})
    height = _ROW_HEIGHT * max(1, len(rows))
    spec = {"height": height, "padding": {"left": 0, "right": 0, "top": 2, "bottom": 2}}
    return frame(rows, spec | {"encoding": {"y": y}, "layer": layers})


def histogram_plot(histogram: LengthHistogram, boundaries: Sequence[int] = ()) -> Spec:
    """The lengths in at most 200 bars, with the inner boundaries as rules on them.

    A long tail gets a logarithmic axis; a bar's height is then samples per doubling of length, so
    that areas still compare.
    """
    bins = bin_histogram(histogram)
    title = "length in tokens (log scale)" if bins.is_log else "length in tokens"
    height = "samples per doubling" if bins.is_log else "samples"
    extent = [bins.rows[0]["lo"], bins.rows[-1]["hi"]]
    scale = {"type": "log" if bins.is_log else "linear", "domain": extent, "nice": False}
    x = {"type": "quantitative", "scale": scale}
    axis: Spec = {"title": title, "grid": False, "format": ",~f", "tickMinStep": 1}
    axis["labelOverlap"] = "greedy"
    if bins.is_log:
        axis["values"] = log_ticks(*extent)
    y = {
        "field": "height",
        "type": "quantitative",
        "title": height,
        "axis": {"format": ",~f", "tickCount": 4, "tickMinStep": 1},
    }
    tooltip = [
        {"field": "range_text", "title": "tokens"},
        {"field": "samples_text", "title": "samples"},
        {"field": "share_text", "title": "share of samples"},
    ]
    bars = {
        "mark": {"type": "rect", "color": colour("series-1"), "opacity": 0.75},
        "encoding": {
            "x": x | {"field": "lo", "axis": axis},
            "x2": {"field": "hi"},
            "y": y,
            "y2": {"datum": 0},
            "tooltip": tooltip,
        },
    }
    inner = [edge for edge in boundaries if extent[0] < edge < extent[1]]
    spec = {"height": 300, "layer": [bars, *_boundary_rules(inner, x)]}
    return frame(bins.rows, spec | {"resolve": {"axis": {"x": "independent"}}})


def _boundary_rules(inner: list[int], x: Spec) -> list[Spec]:
    if not inner:
        return []
    axis = {
        "orient": "top",
        "values": inner,
        "title": "bucket boundaries",
        "titleAnchor": "start",
        "titlePadding": 6,
        "labelOverlap": "greedy",
        "labelSeparation": 8,
        "labelColor": colour("rule"),
        "titleColor": colour("rule"),
        "tickColor": colour("rule"),
        "domain": False,
        "grid": False,
        "format": ",~f",
    }
    rule = {"type": "rule", "color": colour("rule"), "strokeWidth": 1.5, "strokeDash": [5, 3]}
    rows = [{"edge": edge, "text": f"{edge:,} tokens"} for edge in inner]
    encoding = {
        "x": x | {"field": "edge", "axis": axis},
        "tooltip": [{"field": "text", "title": "boundary"}],
    }
    return [{"data": {"values": rows}, "mark": rule, "encoding": encoding}]


def bucket_efficiency(bucketing: BoundariesRow) -> Spec:
    """One bar a bucket: its efficiency, on a track whose empty rest is its padding."""
    rows = [
        _bucket(bucket) | {"value": bucket.efficiency, "text": share(bucket.efficiency)}
        for bucket in bucketing.buckets
    ]
    return _bucket_bars(rows, "efficiency", [0, 1], track=True)


def bucket_padding(bucketing: BoundariesRow) -> Spec:
    """One bar a bucket: its share of all padding; a tick marks its share of real tokens."""
    padding = sum(bucket.padding_tokens for bucket in bucketing.buckets) or 1.0
    real = sum(bucket.padded_tokens * bucket.efficiency for bucket in bucketing.buckets) or 1.0
    rows = [
        _bucket(bucket)
        | {
            "value": bucket.padding_tokens / padding,
            "text": share(bucket.padding_tokens / padding),
            "tokens": bucket.padded_tokens * bucket.efficiency / real,
            "tokens_text": share(bucket.padded_tokens * bucket.efficiency / real),
        }
        for bucket in bucketing.buckets
    ]
    most = max([max(row["value"], row["tokens"]) for row in rows] + [0.01])
    spec = _bucket_bars(
        rows, "share of padding (bar), of real tokens (tick)", [0, most * 1.1], track=False
    )
    tick = {"type": "tick", "color": colour("rule"), "thickness": 2.5, "opacity": 1}
    tooltip = [
        {"field": "bucket", "title": "bucket"},
        {"field": "tokens_text", "title": "share of real tokens"},
    ]
    spec["layer"].append(
        {
            "mark": tick,
            "encoding": {"x": {"field": "tokens", "type": "quantitative"}, "tooltip": tooltip},
        }
    )
    return spec


def _bucket(bucket: BucketRow) -> dict[str, Any]:
    return {"bucket": interval(bucket.lo, bucket.hi), "samples": count(bucket.num_samples)}


def _bucket_bars(
    rows: list[dict[str, Any]], title: str, extent: list[float], *, track: bool
) -> Spec:
    height = min(30 * len(rows), _MOST_BUCKET_HEIGHT)
    y = {
        "field": "bucket",
        "type": "ordinal",
        "sort": None,
        "title": None,
        "axis": {"labelOverlap": "greedy", "ticks": False, "domain": False},
        "scale": {"paddingInner": 0.35, "paddingOuter": 0.2},
    }
    x = {
        "field": "value",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": extent, "nice": False},
        "axis": {"format": "~%", "tickCount": 4},
    }
    tooltip = [
        {"field": "bucket", "title": "bucket"},
        {"field": "samples", "title": "samples"},
        {"field": "text", "title": title.partition(" (")[0]},
    ]
    bars = {
        "mark": {"type": "bar", "color": colour("series-1"), "opacity": 0.8},
        "encoding": {"x": x, "tooltip": tooltip},
    }
    ground = {
        "mark": {"type": "bar", "color": colour("track")},
        "encoding": {"x": x | {"datum": extent[1]}, "x2": {"datum": 0}},
    }
    layers = [ground, bars] if track else [bars]
    return frame(rows, {"height": max(height, 60), "encoding": {"y": y}, "layer": layers})
