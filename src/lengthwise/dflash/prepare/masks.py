"""Given answers as training samples: which tokens the assistant would have generated.

A template that marks answers with ``{% generation %}`` is believed. With any other, the
conversation is rendered up to each answer, with and without it: what the answer adds is the
assistant's. This holds only where the tokens before an answer stay the same once it is there, and
that is checked. Templates that rewrite history (drop the thinking of earlier turns) give one
sample an answer instead, each as the target would have seen it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.dflash.prepare.conversations import RowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.prepare.conversations import Conversation, Message
    from lengthwise.dflash.prepare.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Draft:
    """A sample before lengths are checked.

    Attributes:
        input_ids: tokens.
        loss_mask: whether each is the assistant's; as many.
        turn: number of the first answer in it, from 0.
    """

    input_ids: list[int]
    loss_mask: list[bool]
    turn: int

    def __post_init__(self) -> None:
        """A mask of another length is our own bug."""
        assert len(self.input_ids) == len(self.loss_mask)


def drafts_of(conversation: Conversation, template: ChatTemplate) -> list[Draft]:
    """The samples of a conversation whose answers are given.

    Raises:
        RowError: there is no answer, the template refuses the messages, or the answers' tokens
            cannot be told apart from the rest.
    """
    if conversation.raw_text:
        ids = list(template.tokenizer(conversation.messages[0]["content"])["input_ids"])
        return [Draft(ids, [True] * len(ids), 0)]
    messages = template.with_system(conversation.messages)
    answers = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
    if not answers:
        raise RowError("no answer", "keep-responses needs at least one assistant message")
    found: list[Draft] = []
    read = _marked if template.marks_answers else _by_prefix
    for turn, place in enumerate(answers):
        found.append(read(messages[: place + 1], turn, found, template))
    # A draft that grew out of the one before it replaces that one.
    return [
        one for one, then in zip(found, [*found[1:], None], strict=True) if not _grew(one, then)
    ]


def _grew(draft: Draft, then: Draft | None) -> bool:
    return then is not None and then.turn == draft.turn


def _marked(
    messages: Sequence[Message], turn: int, earlier: list[Draft], template: ChatTemplate
) -> Draft:
    """The sample up to an answer, as the template's own marks say."""
    ids, mask = template.marked(messages)
    ids, mask = ids[: _last(mask) + 1], mask[: _last(mask) + 1]
    if not mask:
        raise RowError("no answer", "the template's {% generation %} marks cover no token")
    if earlier and _begins(earlier[-1].input_ids, ids):
        known = earlier[-1].loss_mask
        return Draft(ids, known + mask[len(known) :], earlier[-1].turn)
    # Answers before this one were rewritten: what the target generated is in earlier drafts.
    start = len(mask) if turn else 0
    while start and mask[start - 1]:
        start -= 1
    return Draft(ids, [False] * start + mask[start:], turn)


def _last(mask: list[bool]) -> int:
    """Place of the last True, -1 without one."""
    return next((place for place in range(len(mask) - 1, -1, -1) if mask[place]), -1)


def _begins(first: list[int], whole: list[int]) -> bool:
    return whole[: len(first)] == first


def _by_prefix(
    messages: Sequence[Message], turn: int, earlier: list[Draft], template: ChatTemplate
) -> Draft:
    """The sample up to an answer, by what the answer adds to its prompt."""
    before, through = _span(messages, template)
    end = _end(through, len(before), template)
    answer = [True] * (end - len(before))
    if earlier and _begins(earlier[-1].input_ids, before):
        known = earlier[-1].loss_mask
        between = [False] * (len(before) - len(known))
        return Draft(through[:end], [*known, *between, *answer], earlier[-1].turn)
    return Draft(through[:end], [False] * len(before) + answer, turn)


def _span(messages: Sequence[Message], template: ChatTemplate) -> tuple[list[int], list[int]]:
    """Tokens up to the last answer and through it; the first are checked to begin the second."""
    place = len(messages) - 1
    head = template.text(messages[:-1], prompt=True)
    text = template.text(messages, prompt=False)
    if not text.startswith(head):
        raise RowError(
            "answer not found",
            f"message {place}: the template does not write an answer where its prompt ends "
            f"({head[-40:]!r} is no beginning of the rendered answer); give "
            f"--chat-template-kwargs that suit the answers (enable_thinking=...), or a template "
            f"with {{% generation %}} marks",
        )
    before = template.ids(head)
    if template.source is None:
        answer = template.tokenizer(text[len(head) :], add_special_tokens=False)["input_ids"]
        return before, [*before, *answer, template.stop_ids[0]]
    through = template.ids(text)
    if not _begins(before, through):
        raise RowError(
            "tokens merge across the start of an answer",
            f"message {place}: the prompt's last tokens change once the answer follows",
        )
    return before, through


def _end(ids: list[int], start: int, template: ChatTemplate) -> int:
    """One past the last token that is generated: the stop token, not what the template adds."""
    for place in range(len(ids) - 1, start - 1, -1):
        if ids[place] in template.stop_ids:
            return place + 1
    return len(ids)
