"""Answers from a server: a real one, in a thread, that also fails in every way servers do."""

import threading

import pytest

from lengthwise.dflash.prepare.answers import Answer, Request
from lengthwise.dflash.prepare.server import ServerAnswers
from lengthwise.dflash.prepare.settings import (
    GenerationSettings,
    PrepareConfig,
    ServerSettings,
    TemplateSettings,
)
from lengthwise.errors import ConfigError, TrainingError
from support.dflash_chat import CHATML, END_ID, char_tokenizer, encode
from support.dflash_server import chat, completion, serving


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def requests_of(count):
    return [
        Request(row, 0, tuple(encode(f"p{row}")), ({"role": "user", "content": f"p{row}"},))
        for row in range(count)
    ]


def ask(url, count=1, *, generation=None, template=None, tokenizer=None, **settings):
    server = ServerSettings(
        **{
            "url": url,
            "model": "m",
            "retries": 3,
            "backoff_seconds": 0.0,
            "timeout_seconds": 20.0,
            **settings,
        }
    )
    answers = ServerAnswers(
        server,
        generation or GenerationSettings(max_new_tokens=9),
        template or TemplateSettings(),
        tokenizer or char_tokenizer(CHATML),
        (END_ID, 3),
    )
    reported = {}
    found = answers.answer(requests_of(count), reported.__setitem__)
    assert [reported[place] for place in range(count)] == found
    return found


YES = Answer((*encode("yes"), END_ID), finished=True, exact=False)


def test_a_prompt_goes_out_as_its_tokens_and_the_text_comes_back_as_tokens():
    with serving(lambda *_: (200, completion("yes"))) as served:
        generation = GenerationSettings(max_new_tokens=9, temperature=0.5, top_p=0.9, seed=1)
        found = ask(served.url, generation=generation, api_key="secret")
    assert found == [YES]
    assert served.paths == ["/v1/completions"]
    (sent,) = served.requests
    assert sent["prompt"] == encode("p0")
    assert {name: sent[name] for name in ("model", "max_tokens", "temperature", "top_p")} == {
        "model": "m",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
    }
    assert sent["skip_special_tokens"] is False
    assert 0 <= sent["seed"] < 2**31
    assert served.headers[0]["Authorization"] == "Bearer secret"


def test_chat_sends_messages_and_the_templates_variables():
    with serving(lambda *_: (200, chat("yes"))) as served:
        template = TemplateSettings(kwargs={"enable_thinking": False})
        assert ask(served.url + "/", api="chat", template=template) == [YES]
    assert served.paths == ["/v1/chat/completions"]
    assert served.requests[0]["messages"] == [{"role": "user", "content": "p0"}]
    assert served.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_tokens_that_the_server_tells_are_kept_as_they_are():
    # 3 is a stop token of the target; a stop token that was left out is put at the end.
    replies = [
        completion("x", token_ids=[7, 8, END_ID]),
        completion("x", token_ids=[7, 8], stop_reason=3),
        completion("x", token_ids=[7, 8]),
        completion("x", "length", token_ids=[7, 8]),
    ]
    with serving(lambda number, _: (200, replies[number])) as served:
        found = ask(served.url, 4, concurrency=1)
    assert [(one.token_ids, one.finished, one.exact) for one in found] == [
        ((7, 8, END_ID), True, True),
        ((7, 8, 3), True, True),
        ((7, 8, END_ID), True, True),
        ((7, 8), False, True),
    ]


def test_an_answer_cut_by_its_limit_has_no_end():
    with serving(lambda *_: (200, completion("yes", "length"))) as served:
        assert ask(served.url) == [Answer(tuple(encode("yes")), finished=False, exact=False)]


def test_the_end_is_not_there_twice_where_the_server_leaves_it_in_the_text():
    with serving(lambda *_: (200, completion("yes<|im_end|>"))) as served:
        assert ask(served.url) == [YES]


def test_text_that_its_tokens_do_not_give_back_is_no_answer():
    # The tokenizer has no ~: it is lost, so the tokens would not be what the target said.
    with serving(lambda *_: (200, completion("a~b"))) as served:
        (found,) = ask(served.url)
    assert found.fault == "answer not read back"
    assert "'a~b'" in found.detail


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"error": "slow down"}),
        (500, {"error": "oops"}),
        (503, b""),
        (-1, b""),
        (200, b"<html>gateway</html>"),
        (200, b'{"choices": []}'),
        (200, b'{"choices": [{"text": "yes"}]}'),
        (200, completion(None)),
        (200, completion("yes", "content_filter")),
        (200, b"[1]"),
    ],
)
def test_what_may_pass_is_tried_again(trouble):
    # Two bad replies, then a good one: with three retries the answer is there.
    with serving(lambda number, _: trouble if number < 2 else (200, completion("yes"))) as served:
        assert ask(served.url) == [YES]
    assert len(served.requests) == 3


@pytest.mark.parametrize(
    ("trouble", "rule", "times"),
    [
        ((500, {"error": "oops"}), "server error 500", 4),
        ((429, {"error": "later"}), "server error 429", 4),
        ((200, b"nonsense"), "malformed reply", 4),
        ((400, {"error": "too long"}), "refused with 400", 1),
        ((422, {"error": "no"}), "refused with 422", 1),
    ],
)
def test_what_does_not_pass_is_given_up_and_named_and_the_others_go_on(trouble, rule, times):
    # Only the prompt of row 1 fails; it is sent again as often as retrying may help.
    def reply(_number, body):
        return trouble if body["prompt"] == encode("p1") else (200, completion("yes"))

    with serving(reply) as served:
        found = ask(served.url, 3)
    assert [found[0], found[2]] == [YES, YES]
    assert found[1].fault == rule
    assert found[1].detail
    assert [body["prompt"] for body in served.requests].count(encode("p1")) == times


def test_a_slow_answer_is_given_up_after_its_time():
    over = threading.Event()

    def reply(_number, body):
        if body["prompt"] == encode("p0"):
            over.wait(30)
        return 200, completion("yes")

    with serving(reply) as served:
        found = ask(served.url, 2, timeout_seconds=2.0, retries=1)
        over.set()
    assert found[1] == YES
    assert (found[0].fault, found[0].detail) == ("server too slow", "no answer in 2 s")
    assert [body["prompt"] for body in served.requests].count(encode("p0")) == 2


def test_waits_double_and_the_servers_own_wish_is_heard(monkeypatch):
    # The waits themselves are recorded instead of spent.
    waits = []
    monkeypatch.setattr(
        threading.Event, "wait", lambda _self, seconds=None: waits.append(seconds) or False
    )
    from lengthwise.dflash.prepare import server as subject

    settings = ServerSettings(url="http://x/v1", model="m", retries=4, backoff_seconds=10.0)
    answers = ServerAnswers(settings, GenerationSettings(), TemplateSettings(), None, (END_ID,))
    failures = iter([None, 35.0, None, None, None])

    def fail(_request):
        raise subject._RequestError("busy", "busy", retry=True, wait=next(failures))

    monkeypatch.setattr(answers, "_post", fail)
    assert answers._one(requests_of(1)[0], threading.Event()).fault == "busy"
    assert waits == [10.0, 35.0, 40.0, 60.0]  # 10, max(20, 35), 40, 80 cut to the longest


@pytest.mark.parametrize(
    ("status", "way_out"), [(401, "--api-key-env"), (403, "key"), (404, "--server-model")]
)
def test_a_wrong_key_address_or_model_stops_at_once(status, way_out):
    with (
        serving(lambda *_: (status, {"error": "no"})) as served,
        pytest.raises(ConfigError, match=f"HTTP {status} .*{way_out}"),
    ):
        ask(served.url, 5, concurrency=1)
    assert len(served.requests) == 1


def test_a_server_that_no_request_reaches_stops_the_run():
    with serving(lambda *_: (200, completion("yes"))) as served:
        url = served.url  # closed again before the requests are sent
    with pytest.raises(TrainingError, match=r"none of 3 requests reached .*start the server"):
        ask(url, 3, retries=1)


def test_no_more_requests_at_a_time_than_allowed():
    both = threading.Barrier(2)

    def reply(*_):
        both.wait(60)  # passes only when two are there at the same time
        return 200, completion("yes")

    with serving(reply) as served:
        assert ask(served.url, 8, concurrency=2) == [YES] * 8
    assert served.most_at_once == 2


def test_thinking_that_the_server_splits_off_is_refused_with_the_way_out():
    with serving(lambda *_: (200, chat("yes", reasoning_content="hm"))) as served:
        (found,) = ask(served.url, api="chat")
    assert found.fault == "thinking split off"
    assert "without a reasoning parser" in found.detail


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "localhost:8000"}, "must be a URL"),
        ({"url": "file:///etc/passwd"}, "must be a URL"),
        ({"model": ""}, "server_model"),
        ({"api": "grpc"}, "server_api must be one of completions, chat, got 'grpc'"),
        ({"concurrency": 0}, "concurrency must be from 1"),
        ({"retries": -1}, "retries must be from 0"),
        ({"timeout_seconds": 0.0}, "timeout_seconds must be above 0"),
        ({"backoff_seconds": -1.0}, "backoff_seconds must be from 0"),
    ],
)
def test_settings_of_a_server_are_checked(settings, words):
    with pytest.raises(ConfigError, match=words):
        ServerSettings(**{"url": "http://x/v1", "model": "m", **settings})


def test_a_key_is_never_shown():
    settings = ServerSettings(url="http://x/v1", model="m", api_key="secret")
    config = PrepareConfig(target="t", server=settings)
    assert "secret" not in repr(config)
    assert "secret" not in str(config.decisive())
