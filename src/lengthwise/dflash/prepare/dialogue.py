"""Conversations answered anew, turn by turn, with the answers of earlier turns as history.

Generated tokens are kept as they came. A later turn continues the tokens of the earlier one as
long as the template writes the earlier answer back unchanged; where it does not (thinking of
earlier turns is dropped, white space trimmed), the turn starts a sample of its own, rendered as
the target would see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from lengthwise.dflash.prepare.answers import Request
from lengthwise.dflash.prepare.conversations import RowError
from lengthwise.dflash.prepare.masks import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.prepare.answers import Answer
    from lengthwise.dflash.prepare.conversations import Conversation, Message
    from lengthwise.dflash.prepare.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class _Told:
    """The conversation so far, as tokens and as the text that the template makes of it."""

    draft: Draft
    text: str
    """Up to the end of the latest answer, without its stop token."""
    stop_text: str


class Dialogue:
    """A conversation on its way.

    Attributes:
        conversation: what was read.
        drafts: its samples so far.
    """

    def __init__(self, conversation: Conversation, template: ChatTemplate) -> None:
        """Take the messages apart: what is said before each answer.

        Raises:
            RowError: there are results of tools, which belong to the given answers.
        """
        self.conversation = conversation
        self.drafts: list[Draft] = []
        self._template = template
        messages = template.with_system(conversation.messages)
        self.check(messages)
        spoken = groupby(messages, lambda message: message["role"] == "assistant")
        self._said = [list(group) for is_answer, group in spoken if not is_answer]
        self._history: list[Message] = []
        self._turn = 0
        self._told: _Told | None = None
        self._head = ""
        self._prompt: list[int] = []

    @staticmethod
    def check(messages: Sequence[Message]) -> None:
        """Refuse messages that cannot be answered anew.

        Raises:
            RowError: there are results of tools, which belong to the given answers.
        """
        if any(message["role"] == "tool" for message in messages):
            raise RowError(
                "tool turns",
                "results of tools belong to the calls in the given answers and would not fit new "
                "ones; use --keep-responses for such rows",
            )

    @property
    def at_last_turn(self) -> bool:
        """Whether no answer is left but the one being asked for."""
        return self._turn >= len(self._said) - 1

    def request(self) -> Request | None:
        """The next prompt; None when every one was answered.

        Raises:
            RowError: the template refuses the messages.
        """
        if self._turn == len(self._said):
            self.end()
            return None
        self._history += self._said[self._turn]
        self._head = self._template.text(self._history, prompt=True)
        self._prompt = self._continued() or self._template.ids(self._head)
        if not self._prompt:
            raise RowError("empty", "the prompt has no tokens")
        return Request(
            self.conversation.origin.index,
            self._turn,
            tuple(self._prompt),
            tuple(self._history),
        )

    def take(self, answer: Answer) -> None:
        """Add an answer; one that did not finish ends the conversation."""
        ids = list(answer.token_ids)
        mask = [False] * len(self._prompt) + [True] * len(ids)
        first = self._turn
        if self._told is not None:  # the prompt continues an open sample
            known = self._told.draft
            mask[: len(known.loss_mask)] = known.loss_mask
            first = known.turn
        spoken, stop = (ids[:-1], ids[-1:]) if answer.finished else (ids, [])
        text = self._decode(spoken)
        draft = Draft([*self._prompt, *ids], mask, first)
        self._told = _Told(draft, self._head + text, self._decode(stop))
        self._history.append({"role": "assistant", "content": text})
        self._turn += 1
        if not answer.finished:
            self._turn = len(self._said)

    def end(self) -> None:
        """Nothing more will be answered: what was told so far becomes a sample."""
        if self._told is not None:
            self.drafts.append(self._told.draft)
            self._told = None
        self._turn = len(self._said)

    def _continued(self) -> list[int] | None:
        """The tokens so far and those of the next prompt; None if history was rewritten."""
        told = self._told
        if told is None:
            return None
        if not self._head.startswith(told.text):
            self.drafts.append(told.draft)
            self._told = None
            return None
        rest = self._head[len(told.text) :].removeprefix(told.stop_text)
        return [*told.draft.input_ids, *self._template.ids(rest)]

    def _decode(self, ids: list[int]) -> str:
        return str(
            self._template.tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )
