"""Collect a real corpus with a heavy tail, without a download: Python's own functions.

Every function and method of the running Python's standard library becomes one JSON line
``{"name": ..., "text": ...}``. Functions inside functions and methods are collected as well, so
their text also stands inside their parent's. Directories of tests are left out: they would be
two thirds of the corpus, and near copies of one another.

    python examples/stdlib_corpus.py out/stdlib.jsonl
"""

from __future__ import annotations

import argparse
import ast
import json
import sysconfig
import textwrap
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SKIPPED_DIRECTORIES = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
)


@dataclass(slots=True)
class CollectionReport:
    """What went into the corpus and what did not."""

    num_files: int = 0
    num_functions: int = 0
    unparsed: list[str] = field(default_factory=list)
    """One line a file that could not be parsed, with the reason."""

    def summary(self) -> str:
        """The report in one paragraph."""
        lines = [f"{self.num_functions:,} functions from {self.num_files:,} files"]
        lines.append(f"{len(self.unparsed):,} files could not be parsed")
        return ", ".join(lines) + "".join(f"\n  {line}" for line in self.unparsed)


def source_files(root: Path) -> Iterator[Path]:
    """Python files under ``root``, sorted, without tests and installed packages."""
    for path in sorted(root.rglob("*.py")):
        if SKIPPED_DIRECTORIES.isdisjoint(path.relative_to(root).parts):
            yield path


def functions_of(source: str) -> Iterator[tuple[str, str]]:
    """``(name, text)`` of every function in ``source``, decorators left out.

    The text is cut out by line numbers: ``ast.get_source_segment`` splits the whole source anew
    for every call, which makes it some twenty times slower. Lines end at a newline only, as for
    the parser; ``str.splitlines`` would also break at a form feed and shift every line below it.
    """
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            yield node.name, textwrap.dedent(text)


def write_corpus(root: Path, output: Path) -> CollectionReport:
    """Write every function under ``root`` to ``output`` as JSON lines.

    Args:
        root: directory to walk.
        output: JSON lines file; its directory is made if need be.

    Returns:
        Counts, and the files that could not be read as Python with the reason for each.
    """
    report = CollectionReport()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as sink:
        for path in source_files(root):
            relative = path.relative_to(root)
            try:
                functions = list(functions_of(path.read_text(encoding="utf-8")))
            except (SyntaxError, ValueError) as error:
                report.unparsed.append(f"{relative}: {type(error).__name__}: {error}")
                continue
            report.num_files += 1
            for name, text in functions:
                sink.write(json.dumps({"name": f"{relative}:{name}", "text": text}) + "\n")
                report.num_functions += 1
    return report


def standard_library() -> Path:
    """Where the running Python keeps its standard library."""
    return Path(sysconfig.get_path("stdlib"))


def main() -> None:
    """Collect the standard library into the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="JSON lines file to write")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        # Old library code has escapes that newer parsers warn of; that is not ours to mend.
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        report = write_corpus(standard_library(), arguments.output)
    print(report.summary())


if __name__ == "__main__":
    main()
