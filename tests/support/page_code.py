"""The code of documentation pages: every block, and a page run as a reader would run it.

A block is fenced. Its language says what is done with it: ``python`` and ``sh`` are run from the
top of the page to its bottom, in one process, so that blocks build on each other; ``yaml``,
``toml`` and ``json`` must parse; ``text``, or no language at all, is output or a drawing. A comment
on the line above says otherwise:

    <!-- not run: REASON -->          where it cannot run here; counted when the tests end
    <!-- lines of: examples/X.py -->  quotes a file, line by line

and at the top of a page ``<!-- after: PAGE.md -->`` says whose results it uses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
RUN = ("python", "sh")
PARSED = ("yaml", "toml", "json")
PLAIN = ("text", "")
_FENCE = re.compile(
    r"^(?:<!-- (?P<kind>not run|lines of): (?P<said>.*?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_AFTER = re.compile(r"^<!-- after: (\S+) -->$", re.MULTILINE)
_COMMAND = re.compile(r"^    (?:lengthwise|python|torchrun|pip|ray|sh) .*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block; ``not_run`` and ``lines_of`` are what its mark says, or empty."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str = ""
    lines_of: str = ""

    @property
    def runs(self):
        return self.language in RUN and not self.not_run and not self.lines_of


def pages():
    """Every page there is: what is in docs/, and what stands at the project's root."""
    return [*sorted(PROJECT.glob("*.md")), *sorted(PROJECT.glob("docs/**/*.md"))]


def blocks(page):
    """All blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("code")),
            found["language"],
            found["code"],
            found["said"] if found["kind"] == "not run" else "",
            found["said"] if found["kind"] == "lines of" else "",
        )
        for found in _FENCE.finditer(text)
    ]


def hidden_commands(page):
    """Commands in indented text, where nothing would run them."""
    return _COMMAND.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def chains():
    """Pages with code to run, each list to be run in one folder, one after the other."""
    before = {page: _AFTER.search(page.read_text(encoding="utf-8")) for page in pages()}
    found = {}
    for page in pages():
        first = page
        while before[first]:
            first = (first.parent / before[first][1]).resolve()
        if any(block.runs for block in blocks(page)):
            found.setdefault(first, []).append(page)
    depth = {page: _depth(page, before) for page in pages()}
    return [sorted(chain, key=lambda page: (depth[page], page)) for chain in found.values()]


def _depth(page, before):
    depth = 0
    while before[page]:
        page, depth = (page.parent / before[page][1]).resolve(), depth + 1
    return depth


def summary():
    """How many blocks run, and how many cannot, by reason; one line."""
    every = [block for page in pages() for block in blocks(page) if block.language in RUN]
    skipped = Counter(block.not_run for block in every if block.not_run)
    quoted = sum(bool(block.lines_of) for block in every)
    reasons = "; ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
    return (
        f"code blocks of {len(pages())} pages: {sum(block.runs for block in every)} run, "
        f"{quoted} quoted from examples, {skipped.total()} not run ({reasons or 'none'})"
    )


def script_of(page):
    """A page's code as one Python script; shell blocks are run where they stand."""
    parts = ["import subprocess as _subprocess"]
    for block in blocks(page):
        if block.runs and block.language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", block.code]
            parts.append(f"_subprocess.run({command!r}, check=True)")
        elif block.runs:
            parts.append(block.code)
    return "\n".join(parts)


def place_for(folder):
    """Make a folder look like the project's root, with nothing made yet."""
    for name in ("data", "examples"):
        if not (folder / name).exists():
            (folder / name).symlink_to(PROJECT / name)
    return folder


def run_page(page, folder, *, timeout=900):
    """Run all of a page's code in a folder; what the process printed, after it has ended well.

    Every file that a shell block names as its output must be there afterwards.
    """
    script = folder / f"{page.stem}_page.py"
    script.write_text(script_of(page), encoding="utf-8")
    scripts = sysconfig.get_path("scripts")
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    finished = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-6000:]
    assert "Traceback" not in finished.stderr
    for block in blocks(page):
        if block.runs and block.language == "sh":
            made = re.findall(r"(?:--output|--html|--histogram|>) (out/\S+)", block.code)
            assert [name for name in made if not (folder / name).exists()] == []
    return finished
