"""The API reference: a page for each package, of the names that it offers.

What a package offers is its ``__all__``; of ``integrations`` and ``errors``, all that is public.
Sources are parsed, not imported, so this needs nothing installed.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
WHOLE = ("lengthwise.errors", "lengthwise.integrations", "lengthwise.loader.testing")
"""Modules, and a package, whose public functions and classes are all for users."""
FIRST = ("lengthwise", "lengthwise.loader", "lengthwise.integrations", "lengthwise.errors")
"""What stands first; others follow by name."""


def tree_of(name: str) -> ast.Module:
    """The syntax tree of a module or package."""
    place = SOURCE.joinpath(*name.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def offered(tree: ast.Module) -> list[str]:
    """The names in ``__all__``, or none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def imported(tree: ast.Module) -> dict[str, str]:
    """Name -> path that it is imported from, of what a package imports from lengthwise."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lengthwise")
        for alias in node.names
    }


def defined_at(path: str) -> str:
    """Where a name is defined; packages that only pass it on are passed through."""
    module, _, name = path.rpartition(".")
    if not (SOURCE.joinpath(*module.split(".")) / "__init__.py").exists():
        return path
    onward = imported(tree_of(module)).get(name, path)
    return path if onward == path else defined_at(onward)


def public(name: str) -> list[str]:
    """Paths of the functions and classes that a module defines and does not hide."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [
        f"{name}.{node.name}"
        for node in tree_of(name).body
        if isinstance(node, kinds) and not node.name.startswith("_")
    ]


def _contents(name: str) -> list[str]:
    if name in WHOLE:
        place = SOURCE.joinpath(*name.split("."))
        modules = [name]
        if place.is_dir():
            files = sorted(place.glob("[!_]*.py"))
            modules = [f"{name}.{file.stem}" for file in files]
        return [path for module in modules for path in public(module)]
    tree = tree_of(name)
    where = imported(tree)
    names = [one for one in offered(tree) if one in where and not one.startswith("_")]
    found = [defined_at(where[one]) for one in names]
    return [path for path in found if _is_object(path)]


def _is_object(path: str) -> bool:
    return not SOURCE.joinpath(*path.split(".")).with_suffix(".py").exists()


@cache
def packages() -> dict[str, list[str]]:
    """Package -> paths of what its page describes, in the order of the pages."""
    root = SOURCE / "lengthwise"
    names = {
        ".".join(file.parent.relative_to(SOURCE).parts) for file in root.rglob("__init__.py")
    } | set(WHOLE)
    rank = {name: place for place, name in enumerate(FIRST)}
    ordered = sorted(names, key=lambda name: (rank.get(name, len(rank)), name))
    return {name: found for name in ordered if (found := _contents(name))}


@cache
def documented() -> frozenset[str]:
    """Paths that some page describes."""
    return frozenset(path for paths in packages().values() for path in paths)


def home_page(path: str) -> str:
    """The package that describes an object: of those that offer it, the innermost."""
    offering = [name for name, paths in packages().items() if path in paths]
    return max(offering, key=lambda name: (name.count("."), path.startswith(name)))


def page(name: str) -> str:
    """A package's page, in Markdown with mkdocstrings' directives."""
    about = (ast.get_docstring(tree_of(name)) or "").split("\n\n")[0]
    parts = [f"# {name}", " ".join(about.split()).replace("``", "`")]
    own = [path for path in packages()[name] if home_page(path) == name]
    others = [path for path in packages()[name] if path not in own]
    if others:
        links = (f"[`{path.rsplit('.', 1)[1]}`][{path}]" for path in others)
        parts.append(f"It also offers {', '.join(links)}.")
    return "\n\n".join([*parts, *(f"::: {path}" for path in own)]) + "\n"
