"""Pictures of specs outside a browser, through vl-convert (offline)."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, Literal, overload

from lengthwise.errors import ConfigError, MissingDependencyError
from lengthwise.report.theme import COLOURS, resolve

if TYPE_CHECKING:
    from lengthwise.report.theme import Spec, Theme


def require_extra(module: str) -> Any:
    """Import a module of the ``report`` extra, or say how to get it.

    Raises:
        MissingDependencyError: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingDependencyError(
            f"the HTML report needs {module}, which is not installed: "
            "pip install 'lengthwise[report]'"
        ) from error


@overload
def render_plot(
    spec: Spec, format: Literal["svg"] = "svg", *, theme: Theme = ..., width: int = ...
) -> str: ...
@overload
def render_plot(
    spec: Spec, format: Literal["png"], *, theme: Theme = ..., width: int = ...
) -> bytes: ...
def render_plot(
    spec: Spec,
    format: Literal["svg", "png"] = "svg",  # noqa: A002 - the word every plotting library uses
    *,
    theme: Theme = "light",
    width: int = 720,
) -> str | bytes:
    """Draw a spec as a picture.

    Args:
        spec: a dict of :mod:`lengthwise.report.specs`.
        format: ``"svg"`` gives text on a transparent ground; ``"png"`` gives bytes on the theme's
            paper, at twice the pixels.
        theme: whose colours to use.
        width: of the plot area, in CSS pixels.

    Raises:
        MissingDependencyError: vl-convert-python is not installed.
        ConfigError: another format is asked for.
    """
    vl_convert = require_extra("vl_convert")
    fixed = resolve(spec, theme) | {"width": width}
    if format == "svg":
        return _renumbered(str(vl_convert.vegalite_to_svg(fixed)))
    if format == "png":
        painted = fixed | {"background": COLOURS[theme]["paper"], "padding": 16}
        return bytes(vl_convert.vegalite_to_png(painted, scale=2))
    raise ConfigError(f"a plot can be drawn as 'svg' or 'png', got {format!r}")


def _renumbered(svg: str) -> str:
    """Number the clip paths from 0, so that the same plot is the same text.

    Vega counts on over all plots of a process.
    """
    names = dict.fromkeys(re.findall(r'id="(clip\d+)"', svg))
    numbers = {name: f"clip{place}" for place, name in enumerate(names)}
    return re.sub(r'(?<=[#"])clip\d+', lambda found: numbers.get(found[0], found[0]), svg)
