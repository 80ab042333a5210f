"""A conversation as the target's chat template writes it, and as tokens.

Tokens are those of the rendered text without special tokens added, which is what serving engines
do: the template writes the special tokens itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.prepare.conversations import RowError
from lengthwise.errors import ConfigError, DataError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.prepare.conversations import Message
    from lengthwise.dflash.prepare.settings import TemplateSettings


@dataclass(frozen=True)
class ChatTemplate:
    """Renders conversations with a tokenizer's template, or in plain form.

    Args:
        tokenizer: a Hugging Face tokenizer.
        settings: which template, which variables, which system prompt.
        stop_ids: tokens that end an answer.

    Raises:
        ConfigError: the tokenizer has no template and plain form was not asked for, or the
            template is refused by Jinja.
    """

    tokenizer: Any
    settings: TemplateSettings
    stop_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a tokenizer without a template."""
        if self.settings.plain or self.source is not None:
            return
        raise ConfigError(
            "the tokenizer has no chat template; give one with --chat-template FILE, or use plain "
            "form with --plain: the prompt as it is, the answer straight after it"
        )

    @cached_property
    def source(self) -> str | None:
        """The Jinja source in use; None in plain form or where there is none."""
        if self.settings.plain:
            return None
        if self.settings.chat_template is not None:
            return self.settings.chat_template
        own = getattr(self.tokenizer, "chat_template", None)
        if isinstance(own, dict):  # several by name, in old tokenizers
            own = own.get("default")
        return own

    @property
    def marks_answers(self) -> bool:
        """Whether the template itself marks what the assistant generates."""
        return self.source is not None and "{% generation" in self.source.replace("{%-", "{%")

    def with_system(self, messages: Sequence[Message]) -> list[Message]:
        """The messages, after the system prompt where they have no system message."""
        system = self.settings.system_prompt
        if system is None or messages[0]["role"] == "system":
            return list(messages)
        return [{"role": "system", "content": system}, *messages]

    def text(self, messages: Sequence[Message], *, prompt: bool) -> str:
        """The conversation as text.

        Args:
            messages: in order.
            prompt: whether the head of the answer to come is added.

        Raises:
            RowError: the template refuses these messages, or they do not fit plain form.
        """
        if self.source is None:
            return self._plain(messages)
        return str(self._apply(messages, add_generation_prompt=prompt, tokenize=False))

    def ids(self, text: str) -> list[int]:
        """Tokens of rendered text."""
        if self.source is not None:
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        ids = list(self.tokenizer(text)["input_ids"])
        while ids and ids[-1] in self.stop_ids:  # some tokenizers end every text
            ids.pop()
        return ids

    def marked(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Tokens, and which of them the template marks as the assistant's.

        Raises:
            RowError: the template refuses these messages.
            DataError: the tokenizer cannot tell the place of tokens in the text.
        """
        if not getattr(self.tokenizer, "is_fast", False):
            raise DataError(
                "the chat template marks answers with {% generation %}, which needs a fast "
                "tokenizer (one with a tokenizer.json) to find their tokens"
            )
        found = self._apply(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        marks = found.get("assistant_masks", found.get("assistant_mask"))
        return list(found["input_ids"]), [bool(mark) for mark in marks]

    def _apply(self, messages: Sequence[Message], **how: Any) -> Any:
        try:
            from jinja2 import TemplateError, TemplateSyntaxError
        except ImportError:
            raise MissingDependencyError(
                "chat templates need the jinja2 package: pip install 'lengthwise[dflash]'"
            ) from None
        try:
            return self.tokenizer.apply_chat_template(
                list(messages),
                chat_template=self.settings.chat_template,
                **self.settings.kwargs,
                **how,
            )
        except TemplateSyntaxError as error:
            raise ConfigError(f"the chat template is no valid Jinja template: {error}") from None
        except (TemplateError, TypeError) as error:
            raise RowError("refused by the chat template", str(error)) from None

    def _plain(self, messages: Sequence[Message]) -> str:
        roles = [message["role"] for message in messages]
        if roles not in (["user"], ["user", "assistant"]):
            raise RowError(
                "not in plain form",
                f"plain form is one prompt and its answer; the row has {', '.join(roles)}",
            )
        return "".join(message["content"] for message in messages)


def stop_ids_of(tokenizer: Any, generation_config: Any = None) -> tuple[int, ...]:
    """The tokens that end an answer: the tokenizer's end of sequence, and the model's own.

    Raises:
        ConfigError: neither names any.
    """
    found: list[int] = []
    for holder in (tokenizer, generation_config):
        value = getattr(holder, "eos_token_id", None)
        values = value if isinstance(value, (list, tuple)) else [value]
        found += [int(one) for one in values if one is not None]
    if not found:
        raise ConfigError(
            "neither the tokenizer nor the model's generation config names an end-of-sequence "
            "token (eos_token_id), so no answer would ever end; set tokenizer.eos_token"
        )
    return tuple(dict.fromkeys(found))
