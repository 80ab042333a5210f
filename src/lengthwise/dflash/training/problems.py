"""What is wrong with a config, in words: the field, its value, what is allowed."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def problem_lines(item: Any, fields: Sequence[str]) -> list[str]:
    """Lines about one problem.

    Args:
        item: as pydantic's ``ValidationError.errors()`` has it.
        fields: names of all sections and fields there are, as ``section.field``.
    """
    name = ".".join(str(part) for part in item["loc"])
    message, value = item["msg"], item["input"]
    if not name:  # rules about several fields: a line each, which names them
        return [f"  {line}" for line in message.removeprefix("Value error, ").splitlines()]
    match item["type"]:
        case "missing":
            return [f"  {name}: is missing; it has no default"]
        case "extra_forbidden":
            return [f"  {name}: there is no such field; {_way_out(name, fields)}"]
        case "model_type":
            return [f"  {name}: is a section, a mapping of fields; got {value!r}"]
        case "tuple_type":
            return [f"  {name}: must be a list; got {value!r}"]
    return [f"  {name}: {message.replace('Input should be', 'must be')}; got {value!r}"]


def _way_out(name: str, fields: Sequence[str]) -> str:
    """The field that was probably meant: of the same name elsewhere, or spelt nearly so."""
    last = name.rpartition(".")[2]
    elsewhere = [field for field in fields if field.rpartition(".")[2] == last]
    near = elsewhere or get_close_matches(name, fields, n=1, cutoff=0.8)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "`lengthwise dflash train --print-config` lists all"
