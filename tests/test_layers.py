"""The layers of ``docs/architecture.md``, held by reading every import in the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lengthwise

if TYPE_CHECKING:
    from collections.abc import Iterator

MAY_IMPORT = {
    "errors": set(),
    "core": {"errors"},
    "lengths": {"errors", "core"},
    "files": {"errors", "core"},
    "cluster": {"errors", "core", "lengths", "files"},
    "compare": {"errors", "core"},
    "calibrate": {"errors", "core"},
    "predict": {"errors", "core", "compare"},
    "loader": {"errors", "core", "lengths"},
    "integrations": {"errors", "core", "loader"},
    "dflash": {"errors", "core", "lengths", "files", "loader", "calibrate"},
    "simulate": {"errors", "core"},
    "pipeline": {"errors", "core", "cluster", "loader", "dflash", "calibrate", "simulate"},
    "diagnose": {"errors", "core", "simulate", "dflash"},
    "report": {"errors", "core", "diagnose"},
    "cli": {"errors", "core", "lengths", "files", "compare", "report", "dflash", "pipeline"}
    | {"cluster"}
    | {"predict", "calibrate", "simulate", "diagnose"},
    "": {"errors", "core", "lengths", "files", "cluster", "compare", "report"},
}
"""Layer -> the other layers it may import; "" is the package's own front."""

AT_THE_TOP = {
    "": set(),
    "errors": set(),
    "core": {"numpy"},
    "core.kernels": {"numpy", "numba"},
    "lengths": {"numpy"},
    "files": {"numpy"},
    "cluster": {"numpy"},
    "compare": {"numpy"},
    "predict": {"numpy"},
    "loader": {"numpy", "torch"},
    "integrations": {"numpy"},
    "dflash": {"numpy", "torch", "transformers", "pydantic", "safetensors"},
    "simulate": {"numpy"},
    "pipeline": {"numpy", "torch"},
    "calibrate": {"numpy"},
    "diagnose": {"numpy"},
    "report": {"numpy"},
    "cli": {"numpy", "rich", "typer", "tomli_w", "click"},
}
"""Packages that a layer may import at module level: those of a plain installation, and of them
only what each layer is for. numba is slow to import, so it stays behind the kernels."""

INSIDE_FUNCTIONS = {
    "lengths": {"pyarrow", "datasets", "tokenizers", "transformers", "zstandard", "fsspec"},
    "cluster": {"ray"},
    "files": {"pyarrow", "tomli_w"},
    "integrations": {"torch", "accelerate", "torchdata", "transformers", "ray"},
    "dflash": {"pyarrow", "datasets", "huggingface_hub", "jinja2", "yaml", "tqdm", "fsspec"},
    "calibrate": {"scipy", "torch", "transformers"},
    "report": {"jinja2", "vl_convert"},
    "pipeline": {"ray"},
}
"""Packages that a layer may import besides, but only when a function that needs them runs."""


IMPURE = {"time", "datetime", "random", "secrets", "uuid", "socket", "subprocess", "tempfile"}
"""Standard modules that would let a clock, a global generator or the machine into the planner."""


@dataclass(frozen=True)
class Import:
    """One imported module, where it stands and when it runs."""

    target: str
    line: int
    lazy: bool
    """Inside a function, so it runs when the function does."""
    typing_only: bool
    """Under ``if TYPE_CHECKING``, so it never runs."""


def imports_of(source: str) -> list[Import]:
    """Every import of a module, at any depth."""
    return list(_walk(ast.parse(source), lazy=False, typing_only=False))


def _walk(node: ast.AST, *, lazy: bool, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy, typing_only)
        elif isinstance(child, ast.ImportFrom):
            module = "." * child.level + (child.module or "")
            for alias in child.names:
                # `from lengthwise import core` names a module too, so the name is kept.
                yield Import(f"{module}.{alias.name}", child.lineno, lazy, typing_only)
        else:
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            guard = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            yield from _walk(child, lazy=lazy or function, typing_only=typing_only or guard)


def layer_of(module: str) -> str:
    """The layer of ``lengthwise.<module>``; the package's own ``__init__`` has none."""
    parts = module.split(".")
    return "core.kernels" if parts[:2] == ["core", "kernels"] else parts[0]


def violations(module: str, source: str) -> list[str]:
    """What ``source``, standing as ``lengthwise.<module>``, imports against the table."""
    layer = layer_of(module)
    found = []
    for item in imports_of(source):
        package, _, rest = item.target.partition(".")
        if package == "lengthwise":
            problem = _inner_problem(module, layer, rest, item)
        elif package in sys.stdlib_module_names:
            impure = layer.startswith("core") and package in IMPURE
            problem = "a plan is a value of its arguments alone" if impure else ""
        elif not package:
            problem = "relative imports hide the layer; write the full name"
        else:
            problem = _outer_problem(layer, package, item)
        if problem:
            found.append(f"{module}:{item.line} imports {item.target}: {problem}")
    return found


def _inner_problem(module: str, layer: str, target: str, item: Import) -> str:
    head = target.split(".", maxsplit=1)[0]
    if head == "_version":
        return ""
    if head not in MAY_IMPORT:
        return "import from the layer that defines it, not from the package's front"
    own = module.split(".", maxsplit=1)[0]
    if head not in MAY_IMPORT[own] | {own}:
        return f"{own or 'the front'} may not import {head}"
    needs_numba = layer_of(target) == "core.kernels" and layer != "core.kernels"
    if needs_numba and not (item.lazy or item.typing_only):
        return "kernels load numba; import them inside the function that calls them"
    return ""


def _outer_problem(layer: str, package: str, item: Import) -> str:
    if package in AT_THE_TOP[layer]:
        return ""
    if package not in INSIDE_FUNCTIONS.get(layer, set()):
        return f"{layer or 'the front'} does not use {package}"
    return "" if item.lazy or item.typing_only else "import it inside the function that needs it"


def modules() -> list[tuple[str, Path]]:
    """(module name below ``lengthwise``, file) of every source file."""
    root = Path(lengthwise.__file__).parent
    names = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names.append((".".join(part for part in parts if part != "__init__"), path))
    return names


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: str(value)[-40:])
def test_a_module_imports_only_what_its_layer_may(module, path):
    # The table above is the rule; `_version` is the one module that belongs to no layer.
    if module == "_version":
        assert imports_of(path.read_text(encoding="utf-8")) == []
    else:
        assert violations(module, path.read_text(encoding="utf-8")) == []


def test_every_folder_of_the_package_is_a_layer_of_the_table():
    # A new folder without a place in the table would escape the rule above.
    root = Path(lengthwise.__file__).parent
    folders = {path.name for path in root.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("core.plan", "from lengthwise.report.html import render", "core may not import report"),
        ("core.plan", "from lengthwise import report", "core may not import report"),
        ("core.plan", "def f():\n    import pyarrow", "core does not use pyarrow"),
        ("core.plan", "import numba", "core does not use numba"),
        ("core.plan", "from lengthwise.core.kernels.pack import p", "inside the function"),
        ("core.plan", "from lengthwise import BatchLimits", "not from the package's front"),
        ("core.plan", "from . import limits", "relative imports"),
        ("core.plan", "import random", "value of its arguments"),
        ("lengths.parquet", "import pyarrow.parquet as pq", "import it inside the function"),
        ("lengths.parquet", "import torch", "lengths does not use torch"),
        ("report.html", "from lengthwise.cli.app import main", "may not import cli"),
        ("report.html", "from lengthwise.lengths.api import scan", "may not import lengths"),
        ("", "from lengthwise.cli.app import main", "the front may not import cli"),
        ("", "import numpy", "the front does not use numpy"),
    ],
)
def test_the_walk_finds_a_wrong_import(module, source, expected):
    # Each source breaks exactly one rule, so the walk must report exactly that one.
    (found,) = violations(module, source)
    assert expected in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.plan", "import numpy as np\nfrom lengthwise.core.limits import BatchLimits"),
        ("core.plan", "def f():\n    from lengthwise.core.kernels.pack import p"),
        ("core.kernels.pack", "import numba\nfrom lengthwise.core.kernels import kernel"),
        ("lengths.parquet", "def f():\n    import pyarrow.parquet as pq"),
        ("lengths.parquet", "if TYPE_CHECKING:\n    import pyarrow as pa"),
        ("cli.scan", "import typer\nfrom lengthwise.report.html import render"),
        ("", "from lengthwise.core.limits import BatchLimits"),
    ],
)
def test_the_walk_lets_a_right_import_pass(module, source):
    # The counterpart: imports that the layers are made for are not reported.
    assert violations(module, source) == []


def test_tests_of_the_core_need_no_extra():
    """They are run where the wheel is installed without any, where such an import would fail."""
    program = (
        "import importlib.util, pathlib, sys\n"
        "for name in ('torch', 'pyarrow', 'pandas', 'datasets', 'transformers', 'jinja2', 'ray'):\n"
        "    sys.modules[name] = None\n"
        "sys.path.insert(0, 'tests')\n"
        "for folder in ('unit/core', 'property'):\n"
        "    for path in sorted(pathlib.Path('tests', folder).glob('test_*.py')):\n"
        "        spec = importlib.util.spec_from_file_location(path.stem, path)\n"
        "        spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "        print(path)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 25
