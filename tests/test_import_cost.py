"""What starting lengthwise loads. Times stand in ``benchmarks/import_time.py``; here only what."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import lengthwise

HEAVY = (
    "numba",
    "llvmlite",
    "pyarrow",
    "pandas",
    "datasets",
    "tokenizers",
    "transformers",
    "torch",
    "ray",
    "fsspec",
    "jinja2",
    "vl_convert",
    "zstandard",
)
"""Packages that cost from 50 ms to seconds each, and are needed by some functions only."""

IMPORT = "import lengthwise"
EVERY_NAME = "import lengthwise\nfor name in lengthwise.__all__: getattr(lengthwise, name)"
HELP = """
import sys
from lengthwise.cli.app import main
sys.argv = ["lengthwise", *{arguments!r}]
try:
    main()
except SystemExit as finished:
    assert not finished.code, finished.code
"""
LIST_MODULES = """
import json, sys
print()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def modules_after(code: str) -> set[str]:
    """Top-level packages in ``sys.modules`` after running ``code`` in a new interpreter."""
    finished = subprocess.run(
        [sys.executable, "-c", code + LIST_MODULES],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return set(json.loads(finished.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [IMPORT, EVERY_NAME, *(HELP.format(arguments=a) for a in (["--help"], ["scan", "--help"]))],
    ids=["import", "every public name", "--help", "scan --help"],
)
def test_starting_loads_no_heavy_package(code):
    # A user who asks for help, or a worker process that unpickles a config, must not wait for
    # a compiler or a table library. The process is new, so nothing was loaded before.
    loaded = modules_after(code)
    assert "lengthwise" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded & set(HEAVY))


def test_the_check_sees_a_package_that_is_loaded():
    # numpy stands for a heavy package: if it went unseen, the test above could not fail.
    assert "numpy" in modules_after("import numpy")


def test_type_checkers_and_the_interpreter_see_the_same_public_names():
    # The names stand three times: for type checkers, for the lazy import, and in __all__.
    tree = ast.parse(Path(lengthwise.__file__).read_text(encoding="utf-8"))
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "lengthwise." in (node.module or "")
        for alias in node.names
    }
    assert sorted(declared) == sorted(lengthwise.__all__)
    declared.pop("__version__")
    homes = {name: getattr(lengthwise, name).__module__ for name in declared}
    assert homes == declared
