"""Draw the pictures of the concept pages into docs/images, from real plans.

python docs/draw_pictures.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pictures import batches, runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pictures.canvas import Canvas

IMAGES = Path(__file__).parent / "images"
PICTURES: dict[str, Callable[[], Canvas]] = {
    "padding": batches.padding,
    "boundaries": batches.boundaries,
    "pool": batches.pool,
    "diversity": runs.diversity,
    "resume": runs.resume,
    "pipeline": runs.pipeline,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
