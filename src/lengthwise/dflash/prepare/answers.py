"""What asks for an answer and what comes back, whoever generates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.dflash.prepare.conversations import Message


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be answered.

    Attributes:
        row: place of its row in the whole source; with ``turn`` it keys the random draws.
        turn: number of the answer within the conversation, from 0.
        prompt_ids: tokens of the prompt, at least one.
        messages: the same as messages, for servers that render them.
    """

    row: int
    turn: int
    prompt_ids: tuple[int, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        token_ids: generated tokens, the stop token included if there was one.
        finished: it ended by itself.
        exact: the tokens are those generated, not read back from text.
        fault: rule that kept an answer from coming; empty if it came.
        detail: what was found there.
    """

    token_ids: tuple[int, ...] = ()
    finished: bool = False
    exact: bool = True
    fault: str = ""
    detail: str = ""


class Answerer(Protocol):
    """Generates answers."""

    def answer(
        self, requests: Sequence[Request], report: Callable[[int, Answer], None]
    ) -> list[Answer]:
        """An answer to each request, in order; ``report`` gets each with its place as it comes."""
