"""Which column holds the lengths: the named one, or the one that is usually called so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBER, LIST, TEXT, OTHER = "number", "list", "text", "other"
"""Kinds of column: whole numbers are lengths, lists have them, text needs a tokenizer."""

LENGTH_NAMES = frozenset(
    {
        "seq_len", "seq_length", "seqlen", "sequence_length", "length", "lengths", "num_tokens",
        "n_tokens", "ntokens", "token_count", "num_token", "tokens_count", "token_length",
        "token_len", "input_length", "input_len", "tokens",
    }
)  # fmt: skip
TOKEN_NAMES = (("input_ids",), ("tokens", "token_ids", "ids"))
TEXT_NAMES = (("text",), ("content", "document", "prompt", "code", "sentence"))

_HOW_TO_ADD = (
    "name a column with column=... (--column); or add one, such as "
    "ds.map(lambda row: {'length': len(row['input_ids'])})"
)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a source.

    Attributes:
        name: its name.
        kind: NUMBER, LIST, TEXT or OTHER.
        type_name: its type as the format calls it, for messages.
    """

    name: str
    kind: str
    type_name: str


def choose_column(
    fields: Sequence[Field], wanted: str | None, *, has_tokenizer: bool, where: str
) -> Field:
    """The column to take lengths from.

    A column of whole numbers under a usual name comes first, then a list of tokens; with a
    tokenizer, a column of text. Two that are equally good are never decided silently.

    Args:
        fields: the columns there are.
        wanted: the column asked for, or None to find one.
        has_tokenizer: text can be counted.
        where: the source, for messages.

    Raises:
        ColumnError: no such column, none found, several found, or one without lengths.
    """
    if wanted is not None:
        return check_column(fields, wanted, has_tokenizer=has_tokenizer, where=where)
    groups = _text_groups(fields) if has_tokenizer else _length_groups(fields)
    for group in groups:
        if len(group) > 1:
            names = " and ".join(repr(field.name) for field in group)
            raise ColumnError(
                f"{where}: {names} could both hold the lengths; choose one with column=... "
                f"(--column). {_listing(fields)}"
            )
        if group:
            return group[0]
    raise ColumnError(f"{where}: {_none_found(fields, has_tokenizer=has_tokenizer)}")


def check_column(fields: Sequence[Field], name: str, *, has_tokenizer: bool, where: str) -> Field:
    """The column called ``name``, if lengths can come from it.

    Raises:
        ColumnError: there is none of this name, or it holds something else.
    """
    field = next((field for field in fields if field.name == name), None)
    if field is None:
        raise ColumnError(f"{where}: there is no column {name!r}. {_listing(fields)}")
    if field.kind == TEXT and not has_tokenizer:
        raise ColumnError(
            f"{where}: column {name!r} holds text, and characters are not tokens; pass a "
            f"tokenizer (tokenizer=... or --tokenizer tokenizer.json) or name a column of lengths"
        )
    if field.kind == OTHER:
        raise ColumnError(
            f"{where}: column {name!r} is {field.type_name}, which has no length in tokens; "
            f"a column of lengths is whole numbers, lists of token ids, or text with a tokenizer. "
            f"{_listing(fields)}"
        )
    return field


def _length_groups(fields: Sequence[Field]) -> list[list[Field]]:
    numbers = [f for f in fields if f.kind == NUMBER and f.name.casefold() in LENGTH_NAMES]
    return [numbers, *_named(fields, LIST, TOKEN_NAMES)]


def _text_groups(fields: Sequence[Field]) -> list[list[Field]]:
    texts = [field for field in fields if field.kind == TEXT]
    return [*_named(fields, TEXT, TEXT_NAMES), texts]


def _named(
    fields: Sequence[Field], kind: str, name_groups: Sequence[Sequence[str]]
) -> list[list[Field]]:
    return [
        [field for field in fields if field.kind == kind and field.name.casefold() in names]
        for names in name_groups
    ]


def _listing(fields: Sequence[Field]) -> str:
    if not fields:
        return "It has no columns."
    shown = ", ".join(f"{field.name} ({field.type_name})" for field in fields[:40])
    more = f" and {len(fields) - 40:,} more" if len(fields) > 40 else ""
    return f"Columns: {shown}{more}."


def _none_found(fields: Sequence[Field], *, has_tokenizer: bool) -> str:
    if has_tokenizer:
        return f"no column of text for the tokenizer. {_listing(fields)}"
    texts = [field.name for field in fields if field.kind == TEXT]
    by_text = (
        f"; or count the tokens of {texts[0]!r} with tokenizer=... (--tokenizer tokenizer.json)"
        if texts
        else ""
    )
    return f"no column of lengths found. {_listing(fields)} Either {_HOW_TO_ADD}{by_text}."
