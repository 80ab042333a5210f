"""Write docs/reference/cli.md: every command, argument and option, from the commands' signatures.

python docs/cli_page.py
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from lengthwise.cli.app import COMMANDS, DFLASH_COMMANDS

PAGE = Path(__file__).parent / "reference" / "cli.md"
GROUPS = (
    ("lengthwise.cli", "lengthwise", COMMANDS),
    ("lengthwise.cli.dflash", "lengthwise dflash", DFLASH_COMMANDS),
)
"""Package of the files, what is typed before a command's name, command -> summary."""
HEAD = """# Commands

Written by `python docs/cli_page.py` from the commands themselves; `lengthwise COMMAND --help` says
the same. Exit codes: 0 done, 1 a run that failed, 2 wrong use or bad input, 130 interrupted. With
`--json`, standard output holds one object and nothing else.
"""
WORDS = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def parameters(function: Any) -> list[tuple[str, Any, ParameterInfo, Any]]:
    """Name, type, what typer is told, and default of each parameter."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = typing.get_args(hints[name])[:2]
        found.append((name, kind, info, parameter.default))
    return found


def value_of(kind: Any, info: ParameterInfo) -> str:
    """The word for an option's value; empty for a flag."""
    if info.metavar:
        return str(info.metavar)
    inner = [one for one in typing.get_args(kind) if one is not types.NoneType]
    if inner:  # a list, or something that may be left out
        return value_of(inner[0], info)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "\\|".join(str(one.value) for one in kind)
    return "" if kind is bool else WORDS[kind]


def default_of(info: ParameterInfo, default: Any) -> str:
    """What holds where an option is not given; empty where nothing does."""
    if default is inspect.Parameter.empty or default is ...:
        return "required"
    if isinstance(info.show_default, str):
        return info.show_default
    if not info.show_default or default is None or default is False or default == []:
        return ""
    return f"`{getattr(default, 'value', default)}`"


def prose(text: str | None) -> str:
    """Help as Markdown on one line a paragraph, without rich's marks."""
    parts = [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]
    plain = re.sub(r"\[/?(?:bold|italic|dim|cyan|green|yellow)\]", "", "\n\n".join(parts))
    return plain.replace("\\[", "[").replace("<", "&lt;")


def row(name: str, kind: Any, info: ParameterInfo, default: Any) -> str:
    """A parameter as a row: how it is written, what it does, its default."""
    if isinstance(info, ArgumentInfo):
        many = "..." if typing.get_origin(kind) is list else ""
        called = f"`{name.upper()}{many}`"
    else:
        assert isinstance(info, OptionInfo)
        # In an annotation the first of the flags takes the place that a default has elsewhere.
        given = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
        flags = [flag for one in given for flag in one.split("/")]
        flags = flags or [f"--{name.replace('_', '-')}"]
        value = value_of(kind, info)
        called = ", ".join(f"`{flag}`" for flag in flags) + (f" {value}" if value else "")
    text = prose(info.help).replace("\n\n", " ").replace("|", "\\|")
    return f"| {called} | {text} | {default_of(info, default)} |"


def section(package: str, group: str, name: str) -> str:
    """One command: what it does, and its parameters."""
    function = import_module(f"{package}.{name}").command
    found = [one for one in parameters(function) if not one[2].hidden]
    table = ["| parameter | | default |", "|---|---|---|", *(row(*one) for one in found)]
    return "\n".join([f"## {group} {name}\n", f"{prose(function.__doc__)}\n", *table, ""])


def render() -> str:
    """The whole page."""
    overview = ["| command | what it does |", "|---|---|"]
    sections = []
    for package, group, summaries in GROUPS:
        for name, summary in summaries.items():
            called = f"{group} {name}"
            overview.append(f"| [`{called}`](#{called.replace(' ', '-')}) | {summary} |")
            sections.append(section(package, group, name))
    return "\n".join([HEAD, *overview, "", *sections])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
