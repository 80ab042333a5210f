"""A run of rows to samples, in either mode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lengthwise.dflash.prepare.conversations import RowError, bad_row, to_conversation
from lengthwise.dflash.prepare.dialogue import Dialogue
from lengthwise.dflash.prepare.masks import Draft, drafts_of
from lengthwise.dflash.prepare.shards import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lengthwise.dflash.prepare.answers import Answer, Answerer, Request
    from lengthwise.dflash.prepare.conversations import Conversation, SourceRow
    from lengthwise.dflash.prepare.settings import PrepareConfig
    from lengthwise.dflash.prepare.template import ChatTemplate

TOO_LONG = "longer than max_length"
TOO_FEW = "fewer than min_loss_tokens tokens with loss"
PROMPT_TOO_LONG = "prompt too long"
UNFINISHED = "unfinished"


@dataclass(slots=True)
class Work:
    """Turns rows into samples and counts what became of each.

    Attributes:
        config: every setting.
        template: from conversations to tokens.
        answerer: generates answers; None where the given ones are kept.
        longest_prompt: tokens of the longest prompt that leaves room for an answer.
        report: called with (conversations finished, tokens generated) since the last call.
        tally: what became of the rows so far.
    """

    config: PrepareConfig
    template: ChatTemplate
    answerer: Answerer | None
    longest_prompt: int
    report: Callable[[int, int], None]
    tally: Tally = field(default_factory=Tally)

    def run(self, rows: Sequence[SourceRow]) -> list[tuple[Conversation, Draft]]:
        """The samples of ``rows``, in order; ``tally`` has the counts of these rows.

        Raises:
            DataError: a row breaks a rule, and such rows are not to be skipped.
        """
        self.tally = Tally(rows=len(rows))
        drafts = self._given(rows) if self.answerer is None else self._anew(rows)
        fitting = ((conversation, self._fit(conversation, one)) for conversation, one in drafts)
        samples = [(conversation, one) for conversation, one in fitting if one is not None]
        self.tally.samples = len(samples)
        self.tally.tokens = sum(len(one.input_ids) for _, one in samples)
        self.tally.loss_tokens = sum(sum(one.loss_mask) for _, one in samples)
        return samples

    def _given(self, rows: Sequence[SourceRow]) -> Iterable[tuple[Conversation, Draft]]:
        for row in rows:
            try:
                conversation = to_conversation(row, self.config.rows)
                drafts = drafts_of(conversation, self.template)
            except RowError as error:
                self._bad(row, error)
                drafts = []
            else:
                roles = [message["role"] for message in conversation.messages]
                self.tally.answers += max(1, roles.count("assistant"))
            self.report(1, sum(len(one.input_ids) for one in drafts))
            for one in drafts:
                yield conversation, one

    def _anew(self, rows: Sequence[SourceRow]) -> Iterable[tuple[Conversation, Draft]]:
        dialogues: list[Dialogue] = []
        for row in rows:
            try:
                dialogue = Dialogue(to_conversation(row, self.config.rows), self.template)
            except RowError as error:
                self._bad(row, error)
                self.report(1, 0)
            else:
                dialogues.append(dialogue)
        active = dialogues
        while active:
            active = self._round(active)
        return [(one.conversation, draft) for one in dialogues for draft in one.drafts]

    def _round(self, dialogues: Sequence[Dialogue]) -> list[Dialogue]:
        """One answer to each dialogue; those that may have a further turn are returned."""
        asked: list[tuple[Dialogue, Request]] = []
        for dialogue in dialogues:
            request = self._request(dialogue)
            if request is not None:
                asked.append((dialogue, request))

        def report(place: int, answer: Answer) -> None:
            over = asked[place][0].at_last_turn or bool(answer.fault) or not answer.finished
            self.report(int(over), len(answer.token_ids))

        assert self.answerer is not None
        answers = self.answerer.answer([request for _, request in asked], report)
        for (dialogue, _), answer in zip(asked, answers, strict=True):
            self._take(dialogue, answer)
        return [dialogue for dialogue, _ in asked]

    def _request(self, dialogue: Dialogue) -> Request | None:
        row = dialogue.conversation.origin
        try:
            request = dialogue.request()
        except RowError as error:
            dialogue.end()
            self._bad(row, error)
            self.report(1, 0)
            return None
        if request is not None and len(request.prompt_ids) > self.longest_prompt:
            dialogue.end()
            self.tally.dropped_answers[PROMPT_TOO_LONG] += 1
            detail = f"{len(request.prompt_ids):,} tokens, at most {self.longest_prompt:,} fit"
            self.tally.note(row, PROMPT_TOO_LONG, detail)
            self.report(1, 0)
            return None
        return request

    def _take(self, dialogue: Dialogue, answer: Answer) -> None:
        row = dialogue.conversation.origin
        if answer.fault:
            dialogue.end()
            self.tally.dropped_answers[answer.fault] += 1
            self.tally.note(row, answer.fault, answer.detail)
            return
        self.tally.answers += 1
        self.tally.retokenized += not answer.exact
        self.tally.unfinished += not answer.finished
        if not answer.finished and self.config.generation.unfinished == "drop":
            dialogue.end()
            self.tally.dropped_answers[UNFINISHED] += 1
            return
        dialogue.take(answer)

    def _bad(self, row: SourceRow, error: RowError) -> None:
        if self.config.rows.on_bad == "error":
            raise bad_row(row, error.rule, error.detail) from None
        self.tally.bad_rows[error.rule] += 1
        self.tally.note(row, error.rule, error.detail)

    def _fit(self, conversation: Conversation, draft: Draft) -> Draft | None:
        """The draft within the limits, cut where that is asked for; None if it is left out."""
        limits, length = self.config.samples, len(draft.input_ids)
        if length > limits.max_length:
            if limits.too_long == "drop":
                self._drop(conversation, TOO_LONG, f"{length:,} tokens")
                return None
            self.tally.truncated += 1
            most = limits.max_length
            draft = Draft(draft.input_ids[:most], draft.loss_mask[:most], draft.turn)
        if sum(draft.loss_mask) < limits.min_loss_tokens:
            self._drop(conversation, TOO_FEW, f"{sum(draft.loss_mask):,} tokens with loss")
            return None
        return draft

    def _drop(self, conversation: Conversation, rule: str, detail: str) -> None:
        self.tally.dropped_samples[rule] += 1
        self.tally.note(conversation.origin, rule, detail)


def check_rows(rows: Iterable[SourceRow], config: PrepareConfig) -> int:
    """Read all rows before anything is generated, so that a bad one does not stop a long run late.

    Returns:
        The number of rows.

    Raises:
        DataError: a row breaks a rule.
    """
    count = 0
    for row in rows:
        count += 1
        try:
            conversation = to_conversation(row, config.rows)
            Dialogue.check(conversation.messages)
        except RowError as error:
            raise bad_row(row, error.rule, error.detail) from None
    return count
