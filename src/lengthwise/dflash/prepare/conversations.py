"""Rows of any usual form as conversations: roles, contents, and what is wrong with a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lengthwise.dflash.prepare.settings import RowSettings

MESSAGE_COLUMNS = ("messages", "conversations", "conversation")
PROMPT_COLUMNS = ("prompt", "instruction", "question", "query")
RESPONSE_COLUMNS = ("response", "completion", "answer", "output")
TEXT_COLUMNS = ("text",)
_ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant",
    "bot": "assistant", "bing": "assistant", "bard": "assistant",
    "tool": "tool", "function": "tool", "observation": "tool",
    "function_call": "assistant",
}  # fmt: skip
"""Roles as data sets write them -> as chat templates do."""

Message = dict[str, Any]


class RowError(Exception):
    """A row that breaks a rule; ``rule`` is short and counted, ``detail`` says what was found."""

    def __init__(self, rule: str, detail: str) -> None:
        """Keep both parts."""
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row as it was read.

    Attributes:
        file: file or data set it stands in, as the user named it.
        row: its number there: lines count from 1, rows from 0.
        unit: "line" or "row".
        index: its place in the whole source, from 0.
        record: its fields; None where the row could not be read.
        fault: why it could not be read.
    """

    file: str
    row: int
    unit: str
    index: int
    record: Mapping[str, Any] | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a row.

    Attributes:
        origin: the row.
        messages: role, content and whatever else a template may use; in order.
        task: the row's ``task``, for figures by task.
        source: the row's ``source``.
        raw_text: the row is one text without roles.
    """

    origin: SourceRow
    messages: tuple[Message, ...]
    task: str | None = None
    source: str | None = None
    raw_text: bool = False


def bad_row(row: SourceRow, rule: str, detail: str) -> DataError:
    """The error for a row that breaks a rule, where bad rows are not skipped."""
    counted = "from 1" if row.unit == "line" else "from 0"
    return DataError(
        f"{row.file}, {row.unit} {row.row:,} (counting {counted}): {rule}: {detail}. Repair the "
        f"{row.unit}, or leave such rows out with --on-bad skip, which counts them"
    )


def to_conversation(row: SourceRow, settings: RowSettings) -> Conversation:
    """Read a row as a conversation.

    Raises:
        RowError: the row breaks a rule.
    """
    if row.record is None:
        raise RowError("unreadable", row.fault)
    record = row.record
    kind, column = _find(record, settings)
    if kind == "messages":
        messages = _messages(record[column], column)
    elif kind == "prompt":
        messages = _prompt(record, column, settings.response_column)
    else:
        messages = [{"role": "user", "content": _text(record[column], column)}]
    return Conversation(
        row, tuple(messages), _label(record, "task"), _label(record, "source"), kind == "text"
    )


def _label(record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    return value if value is None or isinstance(value, str) else str(value)


def _find(record: Mapping[str, Any], settings: RowSettings) -> tuple[str, str]:
    """The form of a row and the column that has it."""
    usual = {"messages": MESSAGE_COLUMNS, "prompt": PROMPT_COLUMNS, "text": TEXT_COLUMNS}
    kinds = [settings.format] if settings.format != "auto" else list(usual)
    if settings.column is not None:
        if settings.column not in record:
            raise RowError("missing column", _missing(record, settings.column))
        if settings.format != "auto":
            return settings.format, settings.column
        return _kind_of(settings.column, record, usual), settings.column
    for kind in kinds:
        for name in usual[kind]:
            if record.get(name) is not None:
                return kind, name
    wanted = ", ".join(name for kind in kinds for name in usual[kind])
    raise RowError("missing column", f"none of {wanted} is there; {_missing(record, None)}")


def _kind_of(column: str, record: Mapping[str, Any], usual: dict[str, tuple[str, ...]]) -> str:
    for kind, names in usual.items():
        if column in names:
            return kind
    return "messages" if isinstance(record[column], list) else "prompt"


def _missing(record: Mapping[str, Any], column: str | None) -> str:
    there = ", ".join(map(str, record)) or "none"
    wanted = "" if column is None else f"{column!r} is not there; "
    return f"{wanted}the row has: {there} (name the right one with --column and --format)"


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RowError("not text", f"{where} is {type(value).__name__}, not text")
    if not value.strip():
        raise RowError("empty", f"{where} has no text")
    return value


def _prompt(record: Mapping[str, Any], column: str, response_column: str | None) -> list[Message]:
    value = record[column]
    if isinstance(value, list):  # messages up to the one to be answered
        messages = _messages(value, column)
    else:
        prompt = _text(value, column)
        extra = record.get("input") if column == "instruction" else None
        if isinstance(extra, str) and extra.strip():
            prompt = f"{prompt}\n\n{extra}"
        messages = [{"role": "user", "content": prompt}]
    names = RESPONSE_COLUMNS if response_column is None else (response_column,)
    name = next((name for name in names if record.get(name) is not None), None)
    if name is None:
        return messages
    if isinstance(record[name], list):
        both = [*value, *record[name]] if isinstance(value, list) else [*messages, *record[name]]
        return _messages(both, f"{column} + {name}")
    return [*messages, {"role": "assistant", "content": _text(record[name], name)}]


def _messages(value: Any, column: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise RowError("no messages", f"{column} must be a list with at least one message")
    messages = [_message(item, f"{column}[{place}]") for place, item in enumerate(value)]
    roles = [message["role"] for message in messages]
    if "system" in roles[1:]:
        raise RowError("system message not first", f"{column} has roles {', '.join(roles)}")
    for place in range(1, len(roles)):
        if roles[place] == roles[place - 1] == "assistant":
            raise RowError("two answers in a row", f"{column}[{place}] follows another assistant")
    spoken = [role for role in roles if role != "system"]
    if not spoken or spoken[0] != "user":
        raise RowError("no user first", f"{column} has roles {', '.join(roles)}")
    return messages


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise RowError("malformed message", f"{where} is {type(item).__name__}, not an object")
    role = item.get("role", item.get("from"))
    content = item.get("content", item.get("value"))
    if not isinstance(role, str) or role.lower() not in _ROLES:
        raise RowError("unknown role", f"{where} has role {role!r}")
    known = _ROLES[role.lower()]
    more = {
        name: value
        for name, value in item.items()
        if name not in ("role", "from", "content", "value") and value is not None
    }
    if content is None and more.get("tool_calls"):
        return {"role": known, "content": "", **more}
    return {"role": known, "content": _content(content, where), **more}


def _content(content: Any, where: str) -> str:
    """Text, or the texts of a list of parts joined; pictures and sound are refused."""
    if not isinstance(content, list):
        return _text(content, where)
    texts = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise RowError("not text", f"{where} has a part that is not text")
        texts.append(part["text"])
    return _text("".join(texts), where)
