"""Prompts from files, as token ids with their task."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.prepare.conversations import RowError, to_conversation
from lengthwise.dflash.prepare.settings import RowSettings, TemplateSettings
from lengthwise.dflash.prepare.sources import Position, open_source
from lengthwise.dflash.prepare.template import ChatTemplate, stop_ids_of
from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lengthwise.dflash.prepare.conversations import SourceRow

NO_TASK = "all"
"""Task of prompts that name none."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        prompt_ids: token ids, at least one.
        task: what the figures are sorted by.
        text: the prompt as it was written, before the chat template; "" for rows of token ids.
    """

    prompt_ids: tuple[int, ...]
    task: str = NO_TASK
    text: str = ""


class Encoder:
    """From text and rows of files to prompts, by the target's tokenizer."""

    def __init__(self, tokenizer: Any, *, plain: bool = False) -> None:
        """Take a tokenizer.

        Args:
            tokenizer: of the target.
            plain: leave its chat template aside; a tokenizer without one is always used so.
        """
        self._rows = RowSettings()
        self.plain = plain or not getattr(tokenizer, "chat_template", None)
        self._template = ChatTemplate(
            tokenizer, TemplateSettings(plain=self.plain), stop_ids=stop_ids(tokenizer)
        )

    def encode(self, text: str) -> Prompt:
        """A text as the user's one message."""
        try:
            return self._prompt([{"role": "user", "content": text}], None)
        except RowError as error:
            raise DataError(f"prompt {text[:60]!r}: {error}") from None

    def read(self, sources: Sequence[str], limit: int | None = None) -> list[Prompt]:
        """Prompts of files.

        A row has messages, a prompt or a text, and maybe a task; an answer at its end is left out.
        Rows of prepared samples (``input_ids`` and ``loss_mask``) give what stands before the first
        token with loss.

        Args:
            sources: files, globs and directories of JSONL, JSON, Parquet or text.
            limit: rows to read at most.

        Raises:
            DataError: no rows, or a row that is no prompt; names file and row.
        """
        rows = open_source(sources, self._rows).rows(Position())
        prompts = [self._of_row(row) for row, _ in islice(rows, limit)]
        if not prompts:
            raise DataError(f"{', '.join(sources)}: there are no prompts")
        return prompts

    def _of_row(self, row: SourceRow) -> Prompt:
        try:
            if row.record is not None and row.record.get("input_ids") is not None:
                return _of_sample(row.record)
            conversation = to_conversation(row, self._rows)
            messages = list(conversation.messages)
            while messages and messages[-1]["role"] == "assistant":
                messages.pop()
            return self._prompt(messages, conversation.task)
        except RowError as error:
            raise DataError(f"{row.file}, {row.unit} {row.row:,}: {error}") from None

    def _prompt(self, messages: list[dict[str, Any]], task: str | None) -> Prompt:
        if not messages:
            raise RowError("no prompt", "nothing stands before the assistant's answer")
        ids = self._template.ids(self._template.text(messages, prompt=True))
        if not ids:
            raise RowError("no prompt", "the text has no tokens")
        return Prompt(tuple(ids), task or NO_TASK, str(messages[-1]["content"]))


def _of_sample(record: Mapping[str, Any]) -> Prompt:
    ids = [int(token) for token in record["input_ids"]]
    mask = record.get("loss_mask")
    if mask is not None:
        ids = ids[: next((place for place, loss in enumerate(mask) if loss), len(ids))]
    if not ids:
        raise RowError("no prompt", "no token stands before the first one with loss")
    return Prompt(tuple(ids), str(record.get("task") or NO_TASK))


def stop_ids(tokenizer: Any, generation_config: Any = None) -> tuple[int, ...]:
    """Tokens that end an answer, by the tokenizer and the model; empty where neither names one."""
    try:
        return stop_ids_of(tokenizer, generation_config)
    except ConfigError:
        return ()


def by_task(prompts: Iterable[Prompt]) -> dict[str, list[tuple[int, ...]]]:
    """Token ids by task, in the order in which tasks first come."""
    tasks: dict[str, list[tuple[int, ...]]] = {}
    for prompt in prompts:
        tasks.setdefault(prompt.task, []).append(prompt.prompt_ids)
    return tasks
