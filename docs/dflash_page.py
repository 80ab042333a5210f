"""The generated parts of docs/concepts/dflash.md: the picture of the mask, the table of defaults.

python docs/dflash_page.py     # writes both anew
"""

from __future__ import annotations

from pathlib import Path

from lengthwise.dflash.training.describe import field_rows

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "dflash.md"
PICTURE = ROOT / "docs" / "images" / "dflash-mask.svg"

BLOCK_SIZE = 4
DOCUMENTS = (8, 6)
"""Tokens of the two documents that share the picture's row."""
ANCHORS = (3, 5, 11)
CELL, LEFT, TOP = 18, 176, 66
GROUND, LINE, TEXT = "#ffffff", "#d5d9de", "#1f2933"
CONTEXT, OWN, ANCHOR = "#2f6f9f", "#e0912f", "#b3372c"


def document_of(column: int) -> int:
    """Which document a column of the context belongs to."""
    return 0 if column < DOCUMENTS[0] else 1


def sees(block: int, column: int) -> bool:
    """Whether the queries of a block see a column: context first, then the blocks' own places."""
    context = sum(DOCUMENTS)
    anchor = ANCHORS[block]
    if column < context:
        return column < anchor and document_of(column) == document_of(anchor)
    return (column - context) // BLOCK_SIZE == block


def picture() -> str:
    """The mask of a row with two documents and three blocks, as SVG."""
    context, own = sum(DOCUMENTS), BLOCK_SIZE * len(ANCHORS)
    width, height = LEFT + (context + own) * CELL + 16, TOP + own * CELL + 44
    space = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg {space} role="img" font-family="system-ui, sans-serif" font-size="11">',
        "<title>Which keys each query of a block sees</title>",
        f'<rect width="{width}" height="{height}" fill="{GROUND}"/>',
        *_headings(context),
    ]
    for row in range(own):
        block, place = divmod(row, BLOCK_SIZE)
        y = TOP + row * CELL
        label = _row_label(ANCHORS[block], place)
        parts.append(_text(LEFT - 8, y + 13, label, anchor="end"))
        parts += [_cell(block, column, y) for column in range(context + own)]
    parts += [*_legend(height - 16), "</svg>\n"]
    return "\n".join(parts)


def _row_label(anchor: int, place: int) -> str:
    if place == 0:
        return f"anchor {anchor}"
    target = anchor + place
    inside = target < sum(DOCUMENTS) and document_of(target) == document_of(anchor)
    return f"mask, predicts {target}" if inside else "mask, no label: past the end"


def _headings(context: int) -> list[str]:
    first, second = DOCUMENTS
    groups = [
        (0, first, "target's states, document 1"),
        (first, second, "document 2"),
        *((context + BLOCK_SIZE * b, BLOCK_SIZE, f"block {b + 1}") for b in range(len(ANCHORS))),
    ]
    parts = []
    for start, size, words in groups:
        x = LEFT + (start + size / 2) * CELL
        parts.append(_text(x, TOP - 36, words))
    for column in range(context):
        is_anchor = column in ANCHORS
        parts.append(
            _text(
                LEFT + (column + 0.5) * CELL, TOP - 8, str(column),
                colour=ANCHOR if is_anchor else TEXT, bold=is_anchor,
            )
        )  # fmt: skip
    for block, anchor in enumerate(ANCHORS):
        for place in range(BLOCK_SIZE):
            x = LEFT + (context + block * BLOCK_SIZE + place + 0.5) * CELL
            parts.append(_text(x, TOP - 8, str(anchor + place)))
    return parts


def _cell(block: int, column: int, y: int) -> str:
    colour = GROUND
    if sees(block, column):
        colour = CONTEXT if column < sum(DOCUMENTS) else OWN
    x = LEFT + column * CELL
    return f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}" stroke="{LINE}"/>'


def _legend(y: int) -> list[str]:
    parts = []
    items = [(CONTEXT, "context, strictly before the anchor"), (OWN, "its own block, both ways")]
    for place, (colour, words) in enumerate(items):
        x = LEFT + place * 240
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, y, words, anchor="start"))
    return parts


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    colour: str = TEXT,
    bold: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{weight}>{words}</text>'
    )


def defaults() -> str:
    """Every field of a training config: default, range, meaning and reason."""
    rows = [
        f"| `{name}` | {f'`{default}`' if default else 'must be given'} | {_escaped(meaning)} |"
        for name, default, meaning in field_rows()
    ]
    return "\n".join(["| field | default | meaning, range, reason |", "|---|---|---|", *rows])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[")


def main() -> None:
    """Write the picture, and the table between its marks."""
    PICTURE.write_text(picture(), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split("<!-- defaults -->")
    _, tail = rest.split("<!-- /defaults -->")
    PAGE.write_text(
        f"{head}<!-- defaults -->\n{defaults()}\n<!-- /defaults -->{tail}", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
