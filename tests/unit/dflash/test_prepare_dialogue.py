"""Conversations answered anew: histories, samples, and what becomes of answers that fail.

Answers are scripted, so every expected token is written out by hand.
"""

import pytest

from lengthwise.dflash.prepare.answers import Answer
from lengthwise.dflash.prepare.conversations import SourceRow
from lengthwise.dflash.prepare.settings import (
    GenerationSettings,
    PrepareConfig,
    RowSettings,
    SampleSettings,
    TemplateSettings,
)
from lengthwise.dflash.prepare.template import ChatTemplate, stop_ids_of
from lengthwise.dflash.prepare.work import Work
from lengthwise.errors import DataError
from support.dflash_chat import CHATML, FORGETFUL, HEADERS, char_tokenizer, encode, pieces


class Scripted:
    """Says to each prompt what the script has for it, and remembers the prompts."""

    def __init__(self, script):
        self.script = script
        self.prompts = []

    def answer(self, requests, report):
        answers = []
        for place, request in enumerate(requests):
            said = self.script[request.row, request.turn]
            if isinstance(said, str):
                said = Answer(tuple(encode(said)), finished=said.endswith("<|im_end|>"))
            self.prompts.append((request.row, request.turn, list(request.prompt_ids)))
            answers.append(said)
            report(place, said)
        return answers


def work_of(script, template=CHATML, *, kwargs=None, longest_prompt=1000, **settings):
    tokenizer = char_tokenizer(template)
    config = PrepareConfig(
        target="t",
        rows=RowSettings(on_bad=settings.pop("on_bad", "error")),
        generation=GenerationSettings(unfinished=settings.pop("unfinished", "keep")),
        samples=SampleSettings(**settings),
    )
    chat = ChatTemplate(tokenizer, TemplateSettings(kwargs=kwargs or {}), stop_ids_of(tokenizer))
    done = []
    work = Work(config, chat, Scripted(script), longest_prompt, lambda *what: done.append(what))
    return work, done


def rows_of(*conversations):
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [
        SourceRow(
            "f.jsonl",
            index + 1,
            "line",
            index,
            {"messages": [{"role": names[who], "content": text} for who, text in turns]},
        )
        for index, turns in enumerate(conversations)
    ]


def made(work, rows):
    return [(draft.input_ids, draft.loss_mask, draft.turn) for _, draft in work.run(rows)]


def test_every_answer_is_made_anew_with_the_new_history_and_all_have_loss():
    # The given answers ("old") appear nowhere; each turn's prompt has the answers before it.
    script = {(0, 0): "yes<|im_end|>", (0, 1): "no<|im_end|>", (0, 2): "ok<|im_end|>"}
    work, done = work_of(script)
    rows = rows_of([("s", "be"), ("u", "hi"), ("a", "old"), ("u", "so"), ("a", "old"), ("u", "!")])
    expected = pieces(
        ("<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n", False),
        ("<|im_start|>assistant\n", False),
        ("yes<|im_end|>", True),
        ("\n<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n", False),
        ("no<|im_end|>", True),
        ("\n<|im_start|>user\n!<|im_end|>\n<|im_start|>assistant\n", False),
        ("ok<|im_end|>", True),
    )
    assert made(work, rows) == [(*expected, 0)]
    starts = [
        place
        for place in range(len(expected[1]))
        if expected[1][place - 1 : place + 1] == [False, True]
    ]
    for (_, turn, prompt), start in zip(work.answerer.prompts, starts, strict=True):
        assert prompt == expected[0][:start], turn
    assert work.tally.answers == 3
    assert done == [(0, 4), (0, 3), (1, 3)]  # the row is over with its last answer


def test_a_template_that_drops_thinking_gives_a_sample_a_turn():
    script = {(0, 0): "<t>hm</t>yes<|im_end|>", (0, 1): "<t>ah</t>no<|im_end|>"}
    work, _ = work_of(script, FORGETFUL)
    first = pieces(
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", False),
        ("<t>hm</t>yes<|im_end|>", True),
    )
    second = pieces(
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n", False),
        ("<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n", False),
        ("<t>ah</t>no<|im_end|>", True),
    )
    rows = rows_of([("u", "hi"), ("a", "old"), ("u", "so")])
    assert made(work, rows) == [(*first, 0), (*second, 1)]


def test_variables_of_the_template_reach_the_prompt():
    # Without thinking the prompt itself has the empty thought, so it is no part of the answer.
    script = {(0, 0): "yes<|im_end|>"}
    work, _ = work_of(script, FORGETFUL, kwargs={"enable_thinking": False})
    expected = pieces(
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<t></t>", False),
        ("yes<|im_end|>", True),
    )
    assert made(work, rows_of([("u", "hi")])) == [(*expected, 0)]


def test_an_answer_that_the_template_trims_is_kept_as_generated():
    # The header template trims: the answer's own tokens, blanks and all, stay in the first sample.
    script = {(0, 0): " yes <|im_end|>", (0, 1): "no<|im_end|>"}
    work, _ = work_of(script, HEADERS)
    first = pieces(
        ("[h]user[/h]\n\nhi<|im_end|>[h]assistant[/h]\n\n", False), (" yes <|im_end|>", True)
    )
    second = pieces(
        ("[h]user[/h]\n\nhi<|im_end|>[h]assistant[/h]\n\nyes<|im_end|>", False),
        ("[h]user[/h]\n\nso<|im_end|>[h]assistant[/h]\n\n", False),
        ("no<|im_end|>", True),
    )
    rows = rows_of([("u", "hi"), ("a", "x"), ("u", "so")])
    assert made(work, rows) == [(*first, 0), (*second, 1)]


HI = pieces(("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", False))
TWO_TURNS = [("u", "hi"), ("a", "x"), ("u", "so")]


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_an_unfinished_answer_is_kept_or_dropped_counted_and_ends_the_conversation(choice):
    work, done = work_of({(0, 0): "yes", (1, 0): "a<|im_end|>", (1, 1): "bc"}, unfinished=choice)
    found = made(work, rows_of(TWO_TURNS, TWO_TURNS))
    tokens = [sum(mask) for _, mask, _ in found]
    # Row 0 was cut in its first turn, row 1 in its second: "a" and its end are two tokens.
    assert tokens == ([3, 4] if choice == "keep" else [2])
    assert work.tally.unfinished == 2
    assert work.tally.dropped_answers == ({} if choice == "keep" else {"unfinished": 2})
    assert sum(rows for rows, _ in done) == 2


def test_a_failed_answer_ends_its_conversation_and_keeps_what_was_told_before():
    failed = Answer(fault="server error 500", detail="HTTP 500: oops")
    work, done = work_of({(0, 0): failed, (1, 0): "yes<|im_end|>", (1, 1): failed})
    found = made(work, rows_of(TWO_TURNS, TWO_TURNS))
    assert found == [(HI[0] + encode("yes<|im_end|>"), HI[1] + [True] * 4, 0)]
    assert work.tally.dropped_answers == {"server error 500": 2}
    named = [(one.file, one.row, one.rule, one.detail) for one in work.tally.problems]
    assert named == [("f.jsonl", row, "server error 500", "HTTP 500: oops") for row in (1, 2)]
    assert sum(rows for rows, _ in done) == 2


def test_a_prompt_without_room_for_an_answer_is_not_asked():
    work, done = work_of({(0, 0): "y<|im_end|>", (1, 0): "z<|im_end|>"}, longest_prompt=40)
    rows = rows_of(TWO_TURNS, [("u", "hi" * 30)], [("u", "h")])
    work.answerer.script[2, 0] = "w<|im_end|>"
    found = made(work, rows)
    # Row 0's second turn and row 1 are too long; row 0's first turn and row 2 are samples.
    assert [sum(mask) for _, mask, _ in found] == [2, 2]
    assert work.tally.dropped_answers == {"prompt too long": 2}
    assert {(row, turn) for row, turn, _ in work.answerer.prompts} == {(0, 0), (2, 0)}
    assert sum(rows for rows, _ in done) == 3


def test_samples_over_max_length_are_cut_or_left_out():
    script = {(0, 0): "y" * 20 + "<|im_end|>", (1, 0): "y<|im_end|>"}
    room = len(HI[0]) + 5
    rows = rows_of([("u", "hi")], [("u", "hi")])
    cut, _ = work_of(script, max_length=room)
    assert [(len(ids), sum(mask)) for ids, mask, _ in made(cut, rows)] == [
        (room, 5), (room - 3, 2)
    ]  # fmt: skip
    assert (cut.tally.truncated, cut.tally.dropped_samples) == (1, {})
    left, _ = work_of(script, max_length=room, too_long="drop")
    assert [len(ids) for ids, _, _ in made(left, rows)] == [room - 3]
    assert left.tally.dropped_samples == {"longer than max_length": 1}


def test_samples_with_too_few_tokens_of_the_assistant_are_left_out():
    script = {(0, 0): "<|im_end|>", (1, 0): "y<|im_end|>"}
    work, _ = work_of(script)
    assert len(made(work, rows_of([("u", "hi")], [("u", "hi")]))) == 1
    assert sum(work.tally.dropped_samples.values()) == 1
    assert (work.tally.samples, work.tally.loss_tokens) == (1, 2)


def test_bad_rows_stop_the_run_or_are_counted_by_rule():
    rows = rows_of([("u", "hi")], [("u", "x"), ("a", "y"), ("t", "z")], [("a", "x")])
    strict, _ = work_of({(0, 0): "y<|im_end|>"})
    with pytest.raises(DataError, match=r"f\.jsonl, line 2 .*tool turns.*--keep-responses"):
        strict.run(rows)
    lax, done = work_of({(0, 0): "y<|im_end|>"}, on_bad="skip")
    assert len(lax.run(rows)) == 1
    assert lax.tally.bad_rows == {"tool turns": 1, "no user first": 1}
    assert [one.row for one in lax.tally.problems] == [2, 3]
    assert sum(rows for rows, _ in done) == 3


def test_samples_come_in_the_order_of_their_rows_whatever_their_number_of_turns():
    script = {(0, 0): "a<|im_end|>", (0, 1): "b<|im_end|>", (1, 0): "c<|im_end|>"}
    work, _ = work_of(script)
    samples = work.run(rows_of(TWO_TURNS, [("u", "hi")]))
    assert [conversation.origin.index for conversation, _ in samples] == [0, 1]
