"""Which tokens have loss where answers are given: templates of each kind, written out by hand."""

import pytest

from lengthwise.dflash.prepare.conversations import Conversation, RowError, SourceRow
from lengthwise.dflash.prepare.masks import Draft, drafts_of
from lengthwise.dflash.prepare.settings import TemplateSettings
from lengthwise.dflash.prepare.template import ChatTemplate, stop_ids_of
from lengthwise.errors import ConfigError, DataError
from support.dflash_chat import (
    CHATML,
    FORGETFUL,
    HEADERS,
    MARKED,
    char_tokenizer,
    encode,
    pieces,
)


def template_of(source, tokenizer=None, **settings):
    tokenizer = tokenizer or char_tokenizer(source)
    return ChatTemplate(tokenizer, TemplateSettings(**settings), stop_ids_of(tokenizer))


def conversation(*turns, raw=False):
    names = {"s": "system", "u": "user", "a": "assistant"}
    messages = tuple({"role": names[who], "content": text} for who, text in turns)
    return Conversation(SourceRow("f", 0, "row", 0, {}), messages, raw_text=raw)


TWO = conversation(("s", "be"), ("u", "hi"), ("a", "yes"), ("u", "so"), ("a", "no"), ("u", "!"))
CHATML_TWO = pieces(
    ("<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n", False),
    ("<|im_start|>assistant\n", False),
    ("yes<|im_end|>", True),
    ("\n<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n", False),
    ("no<|im_end|>", True),
)


@pytest.mark.parametrize("source", [CHATML, MARKED])
def test_chatml_has_loss_on_each_answer_and_its_end(source):
    # Hand-written. The newline after an answer's end is the template's, not generated, and what
    # follows the last answer teaches nothing. Marks of the template and prefixes must agree.
    (draft,) = drafts_of(TWO, template_of(source))
    assert (draft.input_ids, draft.loss_mask) == CHATML_TWO
    assert draft.turn == 0


def test_headers_have_loss_on_each_answer_as_the_template_trims_it():
    # The template trims contents, so the blanks around the given answer are not there.
    (draft,) = drafts_of(
        conversation(("u", "hi"), ("a", " yes \n"), ("u", "so"), ("a", "no")), template_of(HEADERS)
    )
    assert (draft.input_ids, draft.loss_mask) == pieces(
        ("[h]user[/h]\n\nhi<|im_end|>[h]assistant[/h]\n\n", False),
        ("yes<|im_end|>", True),
        ("[h]user[/h]\n\nso<|im_end|>[h]assistant[/h]\n\n", False),
        ("no<|im_end|>", True),
    )


THINKING = conversation(("u", "hi"), ("a", "<t>hm</t>yes"), ("u", "so"), ("a", "<t>ah</t>no"))
THOUGHTS = [
    pieces(
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", False),
        ("<t>hm</t>yes<|im_end|>", True),
    ),
    pieces(
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n", False),
        ("<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n", False),
        ("<t>ah</t>no<|im_end|>", True),
    ),
]
MARKED_FORGETFUL = FORGETFUL.replace(
    "{{ '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}",
    "{{ '<|im_start|>' + message.role + '\n' }}{% if message.role == 'assistant' %}"
    "{% generation %}{{ content + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ content + '<|im_end|>' }}{% endif %}{{ '\n' }}",
)


@pytest.mark.parametrize("source", [FORGETFUL, MARKED_FORGETFUL])
def test_a_template_that_rewrites_history_gives_a_sample_an_answer(source):
    # The second answer's history lacks the first one's thinking, which the target did generate:
    # so the first answer is learned where it stands whole, and is history only in the second.
    drafts = drafts_of(THINKING, template_of(source))
    assert [(draft.input_ids, draft.loss_mask) for draft in drafts] == THOUGHTS
    assert [draft.turn for draft in drafts] == [0, 1]


def test_history_that_is_not_rewritten_stays_one_sample_in_the_same_template():
    # Nobody thought, so the template drops nothing and the tokens only grow.
    (draft,) = drafts_of(conversation(*[("u", "hi"), ("a", "yes")] * 3), template_of(FORGETFUL))
    assert sum(draft.loss_mask) == 3 * 4  # "yes" and its end, three times


def test_a_prompt_whose_end_is_not_how_the_answer_begins_is_refused_with_the_way_out():
    # Without thinking the prompt ends in an empty thought, which the rendered answer lacks.
    template = template_of(FORGETFUL, kwargs={"enable_thinking": False})
    with pytest.raises(RowError, match="chat-template-kwargs") as caught:
        drafts_of(conversation(("u", "hi"), ("a", "yes")), template)
    assert caught.value.rule == "answer not found"


def test_tokens_that_merge_across_the_start_of_an_answer_are_refused():
    # With a token for two newlines, a newline at the answer's start joins the prompt's last one,
    # so the target would have seen other tokens than those before the answer here.
    import tokenizers

    tokenizer = char_tokenizer(CHATML)
    tokenizer.backend_tokenizer.add_tokens([tokenizers.AddedToken("\n\n", normalized=False)])
    with pytest.raises(RowError) as caught:
        drafts_of(conversation(("u", "hi"), ("a", "\nyes")), template_of(CHATML, tokenizer))
    assert caught.value.rule == "tokens merge across the start of an answer"


def test_plain_form_is_the_prompt_the_answer_and_an_end():
    template = template_of(None, plain=True)
    (draft,) = drafts_of(conversation(("u", "2+2="), ("a", "4")), template)
    assert (draft.input_ids, draft.loss_mask) == pieces(("2+2=", False), ("4<|im_end|>", True))
    with pytest.raises(RowError, match="one prompt and its answer"):
        drafts_of(TWO, template)


def test_a_row_of_text_has_loss_everywhere():
    (draft,) = drafts_of(conversation(("u", "once"), raw=True), template_of(CHATML))
    assert (draft.input_ids, draft.loss_mask) == (encode("once"), [True] * 4)


def test_a_conversation_without_an_answer_is_refused():
    for source in (CHATML, MARKED):
        with pytest.raises(RowError, match="no answer"):
            drafts_of(conversation(("u", "hi")), template_of(source))


def test_marks_that_cover_nothing_are_refused():
    empty = MARKED.replace("message.role == 'assistant'", "message.role == 'tool'")
    with pytest.raises(RowError, match="cover no token"):
        drafts_of(conversation(("u", "hi"), ("a", "yes")), template_of(empty))


def test_a_system_prompt_stands_before_conversations_without_one():
    template = template_of(CHATML, system_prompt="be")
    (without,) = drafts_of(conversation(("u", "hi"), ("a", "yes")), template)
    assert (
        without.input_ids[:14] == encode("<|im_start|>system\nbe<|im_end|>\n<|im_start|>user")[:14]
    )
    own = conversation(("s", "own"), ("u", "hi"), ("a", "yes"))
    (kept,) = drafts_of(own, template)
    assert kept.input_ids[: 1 + 7 + 3] == encode("<|im_start|>system\nown")


def test_without_a_template_the_way_out_is_told():
    with pytest.raises(ConfigError, match="no chat template; give one with --chat-template"):
        template_of(None)
    given = template_of(None, chat_template=CHATML)
    (draft,) = drafts_of(TWO, given)
    assert (draft.input_ids, draft.loss_mask) == CHATML_TWO


def test_what_the_template_refuses_is_the_rows_fault_and_bad_jinja_is_not():
    strict = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RowError, match="refused by the chat template: roles must alternate"):
        drafts_of(TWO, template_of(strict))
    with pytest.raises(ConfigError, match="no valid Jinja template"):
        drafts_of(TWO, template_of("{% for %}"))


def test_marks_need_a_tokenizer_that_knows_places():
    slow = char_tokenizer(MARKED)

    class Slow:
        is_fast = False
        chat_template = MARKED
        eos_token_id = slow.eos_token_id

    with pytest.raises(DataError, match="needs a fast tokenizer"):
        drafts_of(TWO, template_of(MARKED, Slow()))


def test_the_stop_tokens_are_the_tokenizers_first():
    class Model:
        eos_token_id = (7, 94, 8)

    assert stop_ids_of(char_tokenizer(), Model()) == (94, 7, 8)

    class Nothing:
        eos_token_id = None

    with pytest.raises(ConfigError, match="no answer would ever end"):
        stop_ids_of(Nothing(), Nothing())


def test_a_draft_with_a_mask_of_another_length_cannot_exist():
    with pytest.raises(AssertionError):
        Draft([1, 2], [True], 0)
