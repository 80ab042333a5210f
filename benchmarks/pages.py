"""Measured parts of pages: tables, and what stands between a page's marks."""

import json

SPREAD = " ± "
TOGETHER = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"


def table(columns, rows):
    """A table in Markdown; values as they print, and no line ends between one and its spread."""
    lines = [columns, ["---"] * len(columns), *rows]
    text = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    return text.replace(SPREAD, TOGETHER)


def result(path):
    """What a benchmark found, of the file that ``run.py`` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))["result"]


def marks(name):
    """Where a part begins and ends."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def fill(page, parts):
    """Put each part, by the name of its marks, into a page that has them once."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = marks(name)
        head, rest = text.split(begin)
        _, tail = rest.split(end)
        text = f"{head}{begin}\n{part}\n{end}{tail}"
    page.write_text(text, encoding="utf-8")
