"""What every page is made with: templates, plots drawn twice, the library that draws them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from lengthwise.report.plots import render_plot, require_extra
from lengthwise.report.theme import css_variables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lengthwise.report.sections import Plot
    from lengthwise.report.theme import Theme

_FALLBACK_WIDTH = 640


@dataclass(frozen=True, slots=True)
class DrawnPlot:
    """A plot with its spec as JSON and its pictures for browsers without scripts."""

    plot: Plot
    spec_json: str
    light_uri: str
    dark_uri: str


def render_page(template: str, plots: Iterable[Plot], **values: Any) -> str:
    """Fill a template; the page holds its scripts, styles and pictures, and loads nothing.

    Args:
        template: a file in ``templates``.
        plots: to be drawn; the template gets them by name.
        **values: what else it shows.

    Raises:
        MissingDependencyError: jinja2 or vl-convert-python is not installed.
    """
    jinja2 = require_extra("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lengthwise.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["joined"] = _joined
    return str(
        environment.get_template(template).render(
            plots={plot.name: _draw(plot) for plot in plots},
            themes={"light": css_variables("light"), "dark": css_variables("dark")},
            library=_library(),
            **values,
        )
    )


def versions() -> str:
    """Of what draws the plots."""
    vl_convert = require_extra("vl_convert")
    return f"Vega {vl_convert.get_vega_version()}, vl-convert {vl_convert.__version__}"


def _joined(text: str) -> str:
    """A number and its percent sign stay on one line."""
    return text.replace(" %", "\u00a0%")


def _draw(plot: Plot) -> DrawnPlot:
    # "</" must not stand inside a script element; "<\/" is the same string to JSON.
    spec_json = json.dumps(plot.spec, allow_nan=False, separators=(",", ":"))
    safe = spec_json.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return DrawnPlot(plot, safe, _picture(plot.spec, "light"), _picture(plot.spec, "dark"))


def _picture(spec: dict[str, Any], theme: Theme) -> str:
    svg = render_plot(spec, "svg", theme=theme, width=_FALLBACK_WIDTH)
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``."""
    bundle = str(require_extra("vl_convert").javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return bundle.replace("</script", "<\\/script")
