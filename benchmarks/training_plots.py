"""Plots of the training comparison, in the report's look."""

from __future__ import annotations

from statistics import fmean

from lengthwise.report.plots import render_plot
from lengthwise.report.theme import DASHES, colour, frame

LOOKS = {
    "sorted": ("sorted, frozen", "series-5", "cross", 4),
    "bucketed": ("six best buckets", "series-2", "square", 1),
    "windowed": ("windows of 256", "series-3", "triangle-up", 2),
    "pooled": ("pool (default)", "series-1", "circle", 0),
    "random": ("random", "series-4", "diamond", 3),
    "random_pairs": ("random, two batches a step", "series-4", "triangle-down", 1),
}
"""Name, colour, mark, number of the dashes."""
ORDERS = ("shuffled", "stratified", "balanced")


def draw(found, folder):
    """Write training-loss.svg, training-time.svg and training-gradient.svg."""
    points = curves(found["runs"])
    plots = {
        "loss": curve_plot(points, "real_tokens", "real tokens seen"),
        "time": curve_plot(points, "cpu_seconds", "CPU seconds, evaluation left out"),
        "gradient": noise_plot(found["noise"]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in plots.items():
        (folder / f"training-{name}.svg").write_text(render_plot(spec), encoding="utf-8")


def curves(runs, looks=LOOKS):
    """Mean over seeds of every point of every strategy's curve; without the first point.

    The loss falls from that of a uniform guess by then, which would flatten all the rest.
    """
    rows = []
    for name, (label, *_) in looks.items():
        for points in list(zip(*(run[name]["curve"] for run in runs), strict=True))[1:]:
            losses = [point["loss"] for point in points]
            mean = {key: fmean(p[key] for p in points) for key in ("real_tokens", "cpu_seconds")}
            spread = {"loss": fmean(losses), "least": min(losses), "most": max(losses)}
            rows.append({"label": label, **mean, **spread})
    return rows


def curve_plot(rows, key, title, looks=LOOKS):
    """Held-out loss, a line a strategy; the thin bars reach from the least to the most seed."""
    labels, colours, shapes, dashes = zip(*looks.values(), strict=True)
    legend = {"title": None, "orient": "top", "columns": 3, "labelLimit": 260}
    legend |= {"symbolOpacity": 1, "symbolStrokeWidth": 0}  # marks alone, without their lines

    def by_label(values, legend=legend):
        scale = {"domain": labels, "range": values}
        return {"field": "label", "type": "nominal", "scale": scale, "legend": legend}

    axis = {"format": ",~f", "tickCount": 6, "grid": False}
    zero = {"zero": False, "nice": True}
    x = {"field": key, "type": "quantitative", "title": title, "axis": axis, "scale": zero}
    y = {"type": "quantitative", "title": "held-out loss, nats a byte", "scale": zero}
    tints = by_label([colour(name) for name in colours])
    layers = [
        {
            "mark": {"type": "rule", "opacity": 0.35},
            "encoding": {"y": y | {"field": "least"}, "y2": {"field": "most"}},
        },
        {
            "mark": {"type": "line", "strokeWidth": 1.75},
            "encoding": {
                "y": y | {"field": "loss"},
                "strokeDash": by_label([DASHES[place] for place in dashes], None),
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
            "encoding": {
                "y": y | {"field": "loss"},
                "shape": by_label(shapes),
            },
        },
    ]
    spec = {"height": 380, "encoding": {"x": x, "color": tints}, "layer": layers}
    return frame(rows, spec)


def noise_rows(noise):
    """A row a seed, checkpoint, group size and order."""
    return [
        {
            "order": order,
            "group": int(group),
            "noise": row[order]["gradient_noise"],
            "checkpoint": f"after {checkpoint['step']} steps",
        }
        for checkpoints in noise
        for checkpoint in checkpoints
        for group, row in checkpoint["groups"].items()
        for order in ORDERS
    ]


def noise_plot(noise):
    """Gradient noise by batches a step: a point a seed, a line through the seeds' mean."""
    rows = noise_rows(noise)
    moments = list(dict.fromkeys(row["checkpoint"] for row in rows))
    groups = sorted({row["group"] for row in rows})

    def by(field, domain, values):
        legend = {"title": None, "orient": "top", "columns": 3, "symbolType": "stroke"}
        scale = {"domain": domain, "range": values}
        return {"field": field, "type": "nominal", "scale": scale, "legend": legend}

    x = {
        "field": "group",
        "type": "quantitative",
        "title": "batches a step (log scale)",
        "scale": {"type": "log", "base": 2, "domain": [groups[0], groups[-1]], "padding": 16},
        "axis": {"values": groups, "format": "d", "grid": False},
    }
    title = "gradient noise a token, random = 1"
    y = {"type": "quantitative", "title": title, "scale": {"zero": False}}
    dashes = [DASHES[(len(moments) - 1 - place) % len(DASHES)] for place in range(len(moments))]
    look = {
        "color": by("order", list(ORDERS), [colour(f"series-{place}") for place in (2, 3, 1)]),
        "strokeDash": by("checkpoint", moments, dashes),
    }
    layers = [
        {
            "mark": {"type": "rule", "color": colour("axis")},
            "encoding": {"y": y | {"datum": 1}},
        },
        {
            "mark": {"type": "line", "strokeWidth": 1.75},
            "encoding": {"x": x, "y": y | {"field": "noise", "aggregate": "mean"}} | look,
        },
        {
            "mark": {"type": "point", "filled": True, "size": 30, "opacity": 0.6},
            "encoding": {"x": x, "y": y | {"field": "noise"}, "color": look["color"]},
        },
    ]
    return frame(rows, {"height": 340, "layer": layers})
