"""The plot of efficiency against repeat rate: what each family of plans trades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.report.placing import domain, label_points, log_ticks, placed_points
from lengthwise.report.theme import DASHES, NUM_SERIES, SHAPES, colour, frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.report.data import FrontierPoint, StrategyRow
    from lengthwise.report.theme import Spec


def frontier_plot(points: Sequence[FrontierPoint], recommended: StrategyRow | None = None) -> Spec:
    """Efficiency against repeat rate: a line a family, its parameters at the points.

    Both axes are logarithmic: the vertical one in the share of padding, since from 98 to 99 %
    efficiency half of the padding goes. The better plans are towards the upper left. The
    recommended plan is a ring. What is 0 has no place on a logarithmic axis and stands at its
    edge, beyond all others; its tooltip says 0.
    """
    rows, mark = placed_points(points, recommended)
    families = list(dict.fromkeys(row["family"] for row in rows))
    x_domain = domain([row["rate"] for row in [*rows, *mark]])
    y_domain = domain([row["padding"] for row in [*rows, *mark]])
    x = {
        "field": "rate",
        "type": "quantitative",
        "title": "repeat rate (log scale)",
        "scale": {"type": "log", "domain": x_domain, "nice": False},
        "axis": {"values": log_ticks(*x_domain), "format": "~g", "labelOverlap": "greedy"},
    }
    y = {
        "field": "padding",
        "type": "quantitative",
        "title": "efficiency (log scale of padding)",
        "scale": {"type": "log", "domain": y_domain, "nice": False, "reverse": True},
        "axis": {
            "values": log_ticks(*y_domain),
            "labelExpr": "format(1 - datum.value, '.10~%')",
            "labelOverlap": "greedy",
        },
    }
    spec = {
        "height": 400,
        "encoding": {"x": x, "y": y},
        "layer": [
            *_family_layers(families),
            *_label_layers(label_points(rows, mark)),
            *_ring(mark),
        ],
    }
    return frame(rows, spec)


def _family_layers(families: list[str]) -> list[Spec]:
    places = [place % NUM_SERIES for place in range(len(families))]
    tints = [colour(f"series-{place + 1}") for place in places]
    legend = {"title": None, "orient": "top", "columns": 2, "labelLimit": 260}

    def by_family(values: list[str]) -> Spec:
        scale = {"domain": families, "range": values}
        return {"field": "family", "type": "nominal", "scale": scale, "legend": legend}

    tooltip = [
        {"field": "family", "title": "family"},
        {"field": "parameter", "title": "K, W or target"},
        {"field": "efficiency_text", "title": "efficiency"},
        {"field": "rate_text", "title": "repeat rate"},
        {"field": "batches_text", "title": "batches"},
        {"field": "effect_text", "title": "design effect"},
    ]
    lines = [
        {
            "transform": [{"filter": {"field": "family", "equal": family}}],
            "mark": {
                "type": "line",
                "strokeWidth": 1.75,
                "color": tint,
                "strokeDash": DASHES[place],
            },
            "encoding": {"order": {"field": "order", "type": "quantitative"}},
        }
        for family, tint, place in zip(families, tints, places, strict=True)
    ]
    shapes = by_family([SHAPES[place] for place in places])
    points = {
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
        "encoding": {"color": by_family(tints), "shape": shapes, "tooltip": tooltip},
    }
    return [*lines, points]


def _label_layers(labels: list[dict[str, Any]]) -> list[Spec]:
    text = {"type": "text", "fontSize": 11, "tooltip": False}
    return [
        {
            "data": {"values": [row for row in labels if row["side"] == side]},
            "mark": text | {"dy": offset} | look,
            "encoding": {"text": {"field": "parameter"}},
        }
        for side, offset in (("above", -11), ("below", 13))
        for look in (_halo(3), {"color": colour("ink")})
    ]


def _halo(width: int) -> Spec:
    """The look of a copy of some text drawn under it, so that lines do not cross letters."""
    return {"stroke": colour("paper"), "strokeWidth": width, "strokeJoin": "round"}


def _ring(mark: list[dict[str, Any]]) -> list[Spec]:
    ring = {"type": "point", "size": 260, "filled": False, "strokeWidth": 2.5, "opacity": 1}
    tooltip = [
        {"field": "label", "title": "recommended"},
        {"field": "efficiency_text", "title": "efficiency"},
        {"field": "rate_text", "title": "repeat rate"},
    ]
    text = {"type": "text", "fontWeight": "bold", "dy": -17, "text": "recommended"}
    return [
        {
            "data": {"values": mark},
            "mark": ring | {"color": colour("ink")},
            "encoding": {"tooltip": tooltip},
        },
        *(
            {"data": {"values": mark}, "mark": style | {"align": row["align"]}}
            for row in mark
            for style in (text | _halo(4), text | {"color": colour("ink")})
        ),
    ]
