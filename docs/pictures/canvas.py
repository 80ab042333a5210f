"""A small SVG canvas whose colours follow the reader's light or dark theme."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from lengthwise.report.theme import COLOURS, FONT

INK = ("ink", "muted", "grid", "axis", "track", "bar", "series-1", "series-2", "series-3")


def _rules(theme: dict[str, str]) -> str:
    fills = (f".f-{name}{{fill:{theme[name]}}}.s-{name}{{stroke:{theme[name]}}}" for name in INK)
    return "".join(fills)


@dataclass
class Canvas:
    """Collects shapes; colours are names of the report's theme.

    Attributes:
        width: of the picture, in its own units.
        height: of the picture.
        title: what it shows, for who cannot see it.
    """

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        size: int = 12,
        colour: str = "ink",
        bold: bool = False,
    ) -> None:
        """Write words; ``anchor`` says which end of them stands at x."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'class="f-{colour}"{weight}>{escape(words)}</text>'
        )

    def bar(
        self, x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0
    ) -> None:
        """Draw a filled rectangle."""
        faint = f' opacity="{opacity:.2f}"' if opacity < 1 else ""
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{height:.2f}" '
            f'class="f-{colour}"{faint}/>'
        )

    def line(
        self,
        points: list[tuple[float, float]],
        colour: str,
        *,
        width: float = 1.0,
        dashed: bool = False,
    ) -> None:
        """Draw a line through points."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke-width="{width:g}" '
            f'class="s-{colour}"{dashes}/>'
        )

    def dot(self, x: float, y: float, radius: float, colour: str, opacity: float = 1.0) -> None:
        """Draw a filled circle."""
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="f-{colour}" '
            f'opacity="{opacity:.2f}"/>'
        )

    def svg(self) -> str:
        """The picture as a file's text."""
        style = (
            f"<style>{_rules(COLOURS['light'])}"
            f"@media (prefers-color-scheme: dark){{{_rules(COLOURS['dark'])}}}</style>"
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" font-family="{escape(FONT, quote=True)}">'
        )
        body = "\n".join(self.parts)
        return f"{head}\n<title>{escape(self.title)}</title>\n{style}\n{body}\n</svg>\n"
