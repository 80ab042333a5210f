"""A training config as YAML that explains itself: every field with its value and its reason."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from lengthwise.dflash.training.config import TrainConfig
from lengthwise.dflash.training.sections import DrafterSection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

WIDTH = 96


def describe_defaults() -> str:
    """Every field with its default; those that have none say so. What a new file starts from."""
    return "\n".join(_section(TrainConfig, None, "")) + "\n"


def describe(config: TrainConfig) -> str:
    """Every field with the value it has in ``config``; reading the text gives the same config."""
    return "\n".join(_section(TrainConfig, config, "")) + "\n"


def field_rows(kind: type[BaseModel] = TrainConfig, prefix: str = "") -> list[tuple[str, str, str]]:
    """Every field as a row: its name, its default ("" where it must be given), what it means."""
    rows = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            rows += field_rows(inner, f"{prefix}{name}.")
        else:
            default = "" if field.is_required() else _plain(field.get_default())
            rows.append((f"{prefix}{name}", default, _meaning(field)))
    return rows


def _section(kind: type[BaseModel], values: BaseModel | None, indent: str) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        inner = field.annotation
        value = getattr(values, name) if values is not None else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield ""
            yield from _comment(inner.__doc__ or "", indent)
            yield f"{indent}{name}:"
            yield from _section(inner, value, indent + "  ")
        else:
            yield from _comment(_meaning(field), indent)
            yield _line(name, field, values, indent)


def _line(name: str, field: FieldInfo, values: BaseModel | None, indent: str) -> str:
    if values is None and field.is_required():
        return f"{indent}# {name}: (must be given)"
    default = field.get_default()
    value = default if values is None else getattr(values, name)
    # A field that was left out stays out, so that what depends on it is the same again.
    left_out = values is not None and (
        (value is None and default is None) or _comes_from_elsewhere(values, name)
    )
    return f"{indent}{'# ' if left_out else ''}{name}: {_plain(value)}"


def _comes_from_elsewhere(values: BaseModel, name: str) -> bool:
    """Whether the drafter that a run continues from decides this field."""
    return (
        isinstance(values, DrafterSection) and values.init_from is not None and name != "init_from"
    )


def _plain(value: Any) -> str:
    import yaml

    value = list(value) if isinstance(value, tuple) else value
    text = str(yaml.safe_dump(value, default_flow_style=True, width=10_000))
    return text.removesuffix("\n").removesuffix("\n...")


def _meaning(field: FieldInfo) -> str:
    allowed = _allowed(field)
    return f"{field.description or ''}{f' Allowed: {allowed}.' if allowed else ''}"


def _allowed(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(map(str, get_args(field.annotation)))
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [
        f"{words[sign]} {getattr(rule, sign)}"
        for rule in field.metadata
        for sign in words
        if getattr(rule, sign, None) is not None
    ]
    return ", ".join(bounds)


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in wrap(" ".join(text.split()), WIDTH - len(indent) - 2):
        yield f"{indent}# {line}"
