"""Colours and type of the plots, for light and dark.

Specs name colours as CSS variables (``var(--plot-ink)``). In the page the style sheet gives them
values, so that the theme switches without drawing anything again; a picture made outside a browser
has the names replaced by the theme's values (:func:`resolve`).

The three series colours are blue, orange and purple of unequal lightness, which stay apart under
the common kinds of colour blindness; every series also has its own mark shape and line pattern.
"""

from __future__ import annotations

from typing import Any, Literal

Theme = Literal["light", "dark"]
Spec = dict[str, Any]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

COLOURS: dict[Theme, dict[str, str]] = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1f2328",
        "muted": "#5b6470",
        "grid": "#e6e8eb",
        "axis": "#b6bcc4",
        "track": "#e9ecef",
        "bar": "#8c9aa9",
        "accent": "#0f5fa8",
        "rule": "#b3470b",
        "series-1": "#0f5fa8",
        "series-2": "#d1630a",
        "series-3": "#7b2d8b",
        "series-4": "#3f7d3a",
        "series-5": "#555e68",
    },
    "dark": {
        "paper": "#1a1d21",
        "ink": "#e8eaed",
        "muted": "#a5adb7",
        "grid": "#2e3339",
        "axis": "#565e68",
        "track": "#2b3036",
        "bar": "#7d8996",
        "accent": "#6cb2f2",
        "rule": "#f2a25f",
        "series-1": "#6cb2f2",
        "series-2": "#f2a25f",
        "series-3": "#d39be0",
        "series-4": "#8fca86",
        "series-5": "#b4bcc6",
    },
}

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4])
NUM_SERIES = len(SHAPES)


def colour(name: str) -> str:
    """The CSS variable of a plot colour; raises KeyError for a name no theme has."""
    COLOURS["light"][name]  # a misspelt name must fail here, not draw in black
    return f"var(--plot-{name})"


def css_variables(theme: Theme) -> str:
    """The declarations that give every plot colour its value in ``theme``."""
    return " ".join(f"--plot-{name}: {value};" for name, value in COLOURS[theme].items())


def config() -> Spec:
    """The Vega-Lite ``config`` that all plots share."""
    text = {"labelColor": colour("muted"), "titleColor": colour("muted")}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 10,
            "labelPadding": 6,
            "gridColor": colour("grid"),
            "domainColor": colour("axis"),
            "tickColor": colour("axis"),
        },
        "legend": {**text, "labelFontSize": 12, "titleFontSize": 12, "symbolSize": 90},
        "text": {"fontSize": 12, "color": colour("ink")},
    }


def frame(rows: list[dict[str, Any]], body: Spec) -> Spec:
    """A whole spec: ``body`` over ``rows``, as wide as its container, with the shared look."""
    return {
        "data": {"values": rows},
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": config(),
    } | body


def resolve(value: Any, theme: Theme) -> Any:
    """A copy of a spec (or a part of one) with colour names replaced by ``theme``'s values."""
    if isinstance(value, dict):
        return {key: resolve(part, theme) for key, part in value.items()}
    if isinstance(value, list):
        return [resolve(part, theme) for part in value]
    if isinstance(value, str) and value.startswith("var(--plot-"):
        return COLOURS[theme][value.removeprefix("var(--plot-").removesuffix(")")]
    return "sans-serif" if value == FONT else value
