"""The page: one HTML file that needs no network, from report data alone."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from lengthwise.report import sections, tables, words
from lengthwise.report.plots import render_plot, require_extra
from lengthwise.report.theme import css_variables

if TYPE_CHECKING:
    from lengthwise.report.data import ReportData
    from lengthwise.report.sections import Plot
    from lengthwise.report.theme import Theme

_FALLBACK_WIDTH = 640


@dataclass(frozen=True, slots=True)
class _DrawnPlot:
    """A plot with its spec as JSON and its pictures for browsers without scripts."""

    plot: Plot
    spec_json: str
    light_uri: str
    dark_uri: str


def render_html(data: ReportData) -> str:
    """Build the report.

    Args:
        data: the comparison; sections whose figures are missing are left out.

    Returns:
        A complete HTML document. It holds its scripts, styles and pictures, and a content security
        policy that forbids it to load anything.

    Raises:
        MissingDependencyError: jinja2 or vl-convert-python is not installed.
    """
    jinja2 = require_extra("jinja2")
    vl_convert = require_extra("vl_convert")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lengthwise.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["joined"] = _joined
    plots = sections.plots(data)
    return str(
        environment.get_template("report.html.j2").render(
            data=data,
            headline=words.headline(data),
            facts=sections.facts(data),
            recommendation=sections.recommendation(data),
            setting=sections.setting(data),
            strategies=tables.strategy_table(data),
            baselines=tables.baseline_table(data),
            plots={name: _draw(plot) for name, plot in plots.items()},
            glossary=words.GLOSSARY,
            origin=sections.origin(data, _versions(vl_convert)),
            themes={"light": css_variables("light"), "dark": css_variables("dark")},
            library=_library(),
        )
    )


def _joined(text: str) -> str:
    """A number and its percent sign stay on one line."""
    return text.replace(" %", "\u00a0%")


def _draw(plot: Plot) -> _DrawnPlot:
    # "</" must not stand inside a script element; "<\/" is the same string to JSON.
    spec_json = json.dumps(plot.spec, allow_nan=False, separators=(",", ":"))
    safe = spec_json.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return _DrawnPlot(plot, safe, _picture(plot.spec, "light"), _picture(plot.spec, "dark"))


def _picture(spec: dict[str, Any], theme: Theme) -> str:
    svg = render_plot(spec, "svg", theme=theme, width=_FALLBACK_WIDTH)
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``."""
    bundle = str(require_extra("vl_convert").javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return bundle.replace("</script", "<\\/script")


def _versions(vl_convert: Any) -> str:
    return f"Vega {vl_convert.get_vega_version()}, vl-convert {vl_convert.__version__}"
