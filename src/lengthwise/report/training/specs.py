"""Lines over steps or time as Vega-Lite specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.report.sections import Plot
from lengthwise.report.theme import DASHES, colour, frame
from lengthwise.report.words import significant

if TYPE_CHECKING:
    from lengthwise.report.theme import Spec
    from lengthwise.report.training.run import Points

HEIGHT = 260
MOST_MARKS = 60
"""Places of a long curve at which its values can be looked up."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        name: in the legend.
        points: of it; may be empty, then it is left out.
        series: which colour and dash, from 1 to 5.
        faint: thin and pale, for what stands behind another.
        marked: with a mark at each point, for few points.
        errors: half the height of the bar at each point, or empty.
    """

    name: str
    points: Points
    series: int
    faint: bool = False
    marked: bool = False
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes say.

    Attributes:
        x: title.
        y: title.
        y_format: of d3; "~s" has thousands as k.
        y_domain: least and largest value; None as the data has it.
        from_zero: whether the axis must begin at 0.
        is_log: logarithmic.
        least_step: between ticks of y; 0 for any.
    """

    x: str
    y: str
    y_format: str = "~g"
    y_domain: tuple[float, float] | None = None
    from_zero: bool = False
    is_log: bool = False
    least_step: float = 0.0


def plot(name: str, title: str, summary: str, curves: list[Line], axes: Axes) -> Plot | None:
    """A plot of curves, unless there is nothing to draw."""
    if not any(curve.points for curve in curves):
        return None
    return Plot(name, title, summary, lines(curves, axes))


def lines(
    curves: list[Line], axes: Axes, band: list[tuple[float, float, float]] | None = None
) -> Spec:
    """Curves on one pair of axes, with a legend where there are several.

    Args:
        curves: to draw; those behind come first.
        axes: what they are over.
        band: x, least and largest y of what is drawn as an area behind them.
    """
    curves = [curve for curve in curves if curve.points]
    layers: list[Spec] = [_band(band)] if band else []
    layers += [layer for curve in curves for layer in _layers(curve, axes)]
    y_scale: Spec = {"type": "log" if axes.is_log else "linear", "zero": axes.from_zero}
    if axes.y_domain is not None:
        y_scale["domain"] = list(axes.y_domain)
    encoding = {
        "x": {
            "field": "x",
            "type": "quantitative",
            "title": axes.x,
            "scale": {"zero": False, "nice": False},
            "axis": {"grid": False, "format": ",~f", "tickCount": 6, "labelOverlap": True},
        },
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": axes.y,
            "scale": y_scale,
            "axis": {"format": axes.y_format, "tickCount": 5, "tickMinStep": axes.least_step},
        },
        "color": _legend(curves),
    }
    return frame([], {"height": HEIGHT, "encoding": encoding, "layer": layers})


def _legend(curves: list[Line]) -> Spec:
    names = [curve.name for curve in curves]
    several = len(names) > 1
    return {
        "field": "name",
        "type": "nominal",
        "scale": {
            "domain": names,
            "range": [colour(f"series-{curve.series}") for curve in curves],
        },
        "legend": {
            "orient": "top",
            "title": None,
            "columns": 2,
            "symbolType": "stroke",
            "symbolOpacity": 1,
            "symbolStrokeWidth": 3,
            "labelLimit": 220,
        }
        if several
        else None,
    }


def _layers(curve: Line, axes: Axes) -> list[Spec]:
    rows: list[dict[str, Any]] = [{"name": curve.name, "x": x, "y": y} for x, y in curve.points]
    line = {
        "type": "line",
        "strokeWidth": 1 if curve.faint else 2,
        "opacity": 0.45 if curve.faint else 1,
        "strokeDash": [1, 0] if curve.faint else DASHES[curve.series - 1],
    }
    found: list[Spec] = [{"data": {"values": rows}, "mark": line}, _marks(curve, rows, axes)]
    if curve.errors:
        ends = [
            row | {"lo": row["y"] - error, "hi": row["y"] + error}
            for row, error in zip(rows, curve.errors, strict=True)
        ]
        encoding = {"y": {"field": "lo", "type": "quantitative"}, "y2": {"field": "hi"}}
        rule = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}
        found.append({"data": {"values": ends}, "mark": rule, "encoding": encoding})
    return found


def _marks(curve: Line, rows: list[dict[str, Any]], axes: Axes) -> Spec:
    """Points to look up values at: seen where points are few, else every so often and unseen."""
    chosen = rows if curve.marked else rows[:: -(-len(rows) // MOST_MARKS)]
    texts = [row | {"at": f"{row['x']:,.4g}", "text": significant(row["y"], 4)} for row in chosen]
    tooltip = [
        {"field": "name", "title": "curve"},
        {"field": "at", "title": axes.x},
        {"field": "text", "title": axes.y},
    ]
    mark = {"type": "point", "filled": True, "size": 45, "opacity": 1 if curve.marked else 0}
    return {"data": {"values": texts}, "mark": mark, "encoding": {"tooltip": tooltip}}


def _band(band: list[tuple[float, float, float]]) -> Spec:
    rows = [{"x": x, "lo": lo, "hi": hi} for x, lo, hi in band]
    return {
        "data": {"values": rows},
        "mark": {"type": "area", "color": colour("bar"), "opacity": 0.25},
        "encoding": {
            "y": {"field": "lo", "type": "quantitative"},
            "y2": {"field": "hi"},
            "color": {"value": colour("bar")},
        },
    }
