"""Write the file tree, each source file with the first sentence of its docstring.

The whole tree stands in docs/reference/files.md, its folders alone in the README.

python docs/file_tree.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
README, PAGE = PROJECT / "README.md", PROJECT / "docs" / "reference" / "files.md"
BEGIN, END = "<!-- tree -->\n", "<!-- /tree -->\n"
ORDER = (
    "errors.py",
    "core",
    "lengths",
    "files",
    "compare",
    "loader",
    "integrations",
    "dflash",
    "pipeline",
    "report",
    "cli",
)
"""The package's folders in the order of its layers; anything else follows by name."""
LEFT_OUT = ("__init__.py", "_version.py")
COLUMN = 28
OTHERS = {
    "tests/": "a folder a kind: unit, property, integration; the oracles are in support",
    "benchmarks/": "where the figures come from; `make bench` runs them",
    "data/": "the length histogram of the DFlash run (synthetic), and a tiny target model",
    "docs/": "the site's pages: guides, concepts, reference, decisions; `make docs` builds it",
    "Makefile": "the commands; `make help` lists them",
    "constraints.txt": "exact versions of the development environment",
    ".ci/run": "everything that must pass before a change lands",
}


def summary(path: Path) -> str:
    """The first sentence of a module's docstring, as plain text."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    sentence = re.split(r"(?<=\.)\s", paragraph)[0].rstrip(".")
    return re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"\1", sentence).replace("``", "")


def entry(depth: int, name: str, text: str) -> str:
    """One line: the name, indented, and what it is."""
    return f"{'  ' * depth + name:{COLUMN}}  {text}"


def package_lines(folder: Path, depth: int, *, folders_to: int | None) -> list[str]:
    """The lines of a package's modules and, after them, of the packages inside it.

    Args:
        folder: the package.
        depth: of its contents; how far they are indented.
        folders_to: show folders alone, down to this depth; None shows everything.
    """

    def place(path: Path) -> tuple[int, bool, str]:
        rank = ORDER.index(path.name) if path.name in ORDER else len(ORDER)
        return rank, path.is_dir(), path.name

    lines = []
    for path in sorted(folder.iterdir(), key=place):
        if (path / "__init__.py").exists():
            if folders_to is None or depth <= folders_to:
                lines.append(entry(depth, f"{path.name}/", summary(path / "__init__.py")))
                lines += package_lines(path, depth + 1, folders_to=folders_to)
        elif folders_to is not None:
            continue
        elif path.suffix == ".py" and path.name not in LEFT_OUT:
            lines.append(entry(depth, path.name, summary(path)))
    return lines


def render(*, folders_to: int | None = None) -> str:
    """The tree as text, without the markers around it; as :func:`package_lines`."""
    lines = [entry(0, "src/lengthwise/", "the package, lowest layer first")]
    lines += package_lines(PROJECT / "src" / "lengthwise", 1, folders_to=folders_to)
    lines.append(entry(0, "examples/", "numbered examples, and the jobs that `make` runs"))
    if folders_to is None:
        files = sorted((PROJECT / "examples").glob("*.py"))
        lines += [entry(1, path.name, summary(path)) for path in files]
    lines += [entry(0, name, text) for name, text in OTHERS.items()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def main() -> None:
    """Replace the trees."""
    for page, folders_to in ((README, 1), (PAGE, None)):
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(before + BEGIN + render(folders_to=folders_to) + END + after, "utf-8")


if __name__ == "__main__":
    main()
