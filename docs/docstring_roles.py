"""Docstrings on the site: Sphinx's roles, such as ``:class:`~a.b.C```, become links or code."""

from __future__ import annotations

import re
from typing import Any

import griffe

from api_pages import documented

ROLE = re.compile(r":\w+:`(~?)([\w.]+)`")
DOUBLE = re.compile(r"``([^`]+)``")


def plain(text: str) -> str:
    """Markdown instead of reStructuredText: roles and double backticks."""

    def replaced(match: re.Match[str]) -> str:
        short, path = match.groups()
        name = path.rsplit(".", 1)[-1] if short else path
        return f"[`{name}`][{path}]" if path in documented() else f"`{name}`"

    return DOUBLE.sub(r"`\1`", ROLE.sub(replaced, text))


class Roles(griffe.Extension):
    """Translates every docstring once it is collected."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)
