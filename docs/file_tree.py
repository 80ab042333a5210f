"""Write the README's file tree: each source file with the first sentence of its docstring.

python docs/file_tree.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
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
    "docs/": "architecture, decisions, methods, where to begin reading",
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


def package_lines(folder: Path, depth: int) -> list[str]:
    """The lines of a package's modules and, after them, of the packages inside it."""

    def place(path: Path) -> tuple[int, bool, str]:
        rank = ORDER.index(path.name) if path.name in ORDER else len(ORDER)
        return rank, path.is_dir(), path.name

    lines = []
    for path in sorted(folder.iterdir(), key=place):
        if (path / "__init__.py").exists():
            lines.append(entry(depth, f"{path.name}/", summary(path / "__init__.py")))
            lines += package_lines(path, depth + 1)
        elif path.suffix == ".py" and path.name not in LEFT_OUT:
            lines.append(entry(depth, path.name, summary(path)))
    return lines


def render() -> str:
    """The tree as text, without the markers around it."""
    lines = [entry(0, "src/lengthwise/", "the package, lowest layer first")]
    lines += package_lines(PROJECT / "src" / "lengthwise", 1)
    lines.append(entry(0, "examples/", "programs that run as they stand"))
    lines += [entry(1, p.name, summary(p)) for p in sorted((PROJECT / "examples").glob("*.py"))]
    lines += [entry(0, name, text) for name, text in OTHERS.items()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def main() -> None:
    """Replace the tree in the README."""
    readme = PROJECT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(before + BEGIN + render() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
