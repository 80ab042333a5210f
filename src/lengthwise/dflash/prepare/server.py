"""Answers from an OpenAI-compatible server: vLLM, SGLang, llama.cpp and their kind.

The protocol is spoken with the standard library. huggingface_hub's client has no
``/v1/completions``, which takes a prompt as tokens; and it refuses every address, even this
machine's, where ``HF_HUB_OFFLINE`` is set, which is usual on compute nodes.
"""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from lengthwise.core.random import derive_key
from lengthwise.dflash.prepare.answers import Answer
from lengthwise.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.dflash.prepare.answers import Request
    from lengthwise.dflash.prepare.settings import (
        GenerationSettings,
        ServerSettings,
        TemplateSettings,
    )

LONGEST_WAIT_SECONDS = 60.0
"""Longest wait before a retry, whatever the server asks for."""
_WRONG_ADDRESS = {401: "the API key (--api-key-env)", 403: "the API key's rights",
                  404: "the URL and --server-model", 405: "the URL"}  # fmt: skip
_RETRIED = {408, 409, 425, 429}
_SHOWN = 200


class _RequestError(Exception):
    """A request that failed; whether sending it again may help, and after how long."""

    def __init__(self, rule: str, detail: str, *, retry: bool, wait: float | None = None) -> None:
        super().__init__(detail)
        self.rule, self.detail, self.retry, self.wait = rule, detail, retry, wait


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    finished: bool
    token_ids: tuple[int, ...] | None
    stop_id: int | None


class ServerAnswers:
    """Answers from a server, several requests at a time."""

    def __init__(
        self,
        server: ServerSettings,
        settings: GenerationSettings,
        template: TemplateSettings,
        tokenizer: Any,
        stop_ids: tuple[int, ...],
    ) -> None:
        """Ask ``server``; texts become tokens of ``tokenizer``."""
        self._server = server
        self._settings = settings
        self._template = template
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids

    def answer(
        self, requests: Sequence[Request], report: Callable[[int, Answer], None]
    ) -> list[Answer]:
        """An answer to each request, in order; those that failed say why.

        Raises:
            ConfigError: the server refuses the address, the model or the key.
            TrainingError: it could not be reached by any of the requests.
        """
        closing = threading.Event()
        waiting: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[tuple[int, Answer | Exception]] = SimpleQueue()
        for place in range(len(requests)):
            waiting.put(place)
        # Daemons: an interrupted run ends at once, not when the slowest request does.
        for _ in range(min(self._server.concurrency, len(requests))):
            work = partial(self._work, requests, waiting, done, closing)
            threading.Thread(target=work, daemon=True).start()
        found: dict[int, Answer] = {}
        try:
            while len(found) < len(requests):
                place, result = done.get()
                if isinstance(result, Exception):
                    raise result
                found[place] = result
                report(place, result)
        finally:
            closing.set()
        answers = [found[place] for place in range(len(requests))]
        if answers and all(answer.fault == "server not reached" for answer in answers):
            raise TrainingError(
                f"none of {len(answers):,} requests reached {self._server.url}: "
                f"{answers[0].detail}. What was finished before is kept; start the server and "
                f"run the same command again"
            )
        return answers

    def _work(
        self,
        requests: Sequence[Request],
        waiting: SimpleQueue[int],
        done: SimpleQueue[tuple[int, Answer | Exception]],
        closing: threading.Event,
    ) -> None:
        """Answer requests until none is left; an error goes to who waits for the answers."""
        while not closing.is_set():
            try:
                place = waiting.get_nowait()
            except Empty:
                return
            try:
                done.put((place, self._one(requests[place], closing)))
            except Exception as error:  # noqa: BLE001 - raised again by who waits
                done.put((place, error))
                return

    def _one(self, request: Request, closing: threading.Event) -> Answer:
        """One answer, with retries."""
        for attempt in range(self._server.retries + 1):
            try:
                return self._read(self._post(request))
            except _RequestError as failure:
                if not failure.retry or attempt == self._server.retries:
                    return Answer(fault=failure.rule, detail=failure.detail)
                pause = self._server.backoff_seconds * 2**attempt
                if failure.wait is not None:
                    pause = max(pause, failure.wait)
                if closing.wait(min(pause, LONGEST_WAIT_SECONDS)):
                    return Answer(fault=failure.rule, detail=failure.detail)
        raise AssertionError("the last attempt returns")

    def _post(self, request: Request) -> _Text:
        chat = self._server.api == "chat"
        url = self._server.url.rstrip("/") + ("/chat/completions" if chat else "/completions")
        body = json.dumps(self._body(request, chat=chat)).encode()
        headers = {"Content-Type": "application/json"}
        if self._server.api_key:
            headers["Authorization"] = f"Bearer {self._server.api_key}"
        # ServerSettings lets only http and https through.
        post = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(post, timeout=self._server.timeout_seconds) as reply:  # noqa: S310
                raw = reply.read()
        except urllib.error.HTTPError as error:
            raise _refused(error, url) from error
        except TimeoutError as error:
            seconds = self._server.timeout_seconds
            raise _RequestError(
                "server too slow", f"no answer in {seconds:g} s", retry=True
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise _RequestError("server not reached", "timed out", retry=True) from error
            raise _RequestError("server not reached", str(reason), retry=True) from error
        return _parse(raw, chat=chat)

    def _body(self, request: Request, *, chat: bool) -> dict[str, Any]:
        settings = self._settings
        body: dict[str, Any] = {
            "model": self._server.model,
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": derive_key(settings.seed, request.row, request.turn) >> 33,
            "stream": False,
        }
        if settings.top_k:
            body["top_k"] = settings.top_k
        if chat:
            body["messages"] = list(request.messages)
            if self._template.kwargs:
                body["chat_template_kwargs"] = dict(self._template.kwargs)
            return body
        body["prompt"] = list(request.prompt_ids)
        # Tokens such as <think> may be special ones: without this they vanish from the text.
        body["skip_special_tokens"] = False
        body["return_token_ids"] = True
        return body

    def _read(self, reply: _Text) -> Answer:
        """The tokens of an answer: as generated where the server tells them, else read back."""
        if reply.token_ids is not None:
            ids = reply.token_ids
            if reply.finished and (not ids or ids[-1] not in self._stop_ids):
                ids = (*ids, self._stop(reply))
            return Answer(ids, reply.finished)
        text = reply.text
        for stop in self._stop_ids:  # some servers leave the stop token in the text
            text = text.removesuffix(self._tokenizer.decode([stop]))
        encoded = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        if self._tokenizer.decode(encoded, skip_special_tokens=False) != text:
            detail = f"the tokens of {text[:40]!r} do not decode to it again"
            return Answer(fault="answer not read back", detail=detail)
        ids = tuple(encoded) + ((self._stop(reply),) if reply.finished else ())
        return Answer(ids, reply.finished, exact=False)

    def _stop(self, reply: _Text) -> int:
        return reply.stop_id if reply.stop_id in self._stop_ids else self._stop_ids[0]


def _refused(error: urllib.error.HTTPError, url: str) -> Exception:
    detail = error.read(_SHOWN).decode(errors="replace").strip() or error.reason
    said = f"HTTP {error.code} from {url}: {detail}"
    if error.code in _WRONG_ADDRESS:
        return ConfigError(f"{said}. Check {_WRONG_ADDRESS[error.code]}")
    if error.code in _RETRIED or error.code >= 500:
        after = error.headers.get("Retry-After", "")
        seconds = float(after) if after.isdigit() else None
        return _RequestError(f"server error {error.code}", said, retry=True, wait=seconds)
    return _RequestError(f"refused with {error.code}", said, retry=False)


def _parse(raw: bytes, *, chat: bool) -> _Text:
    """The answer in a reply; anything that is not what the protocol says is a failure."""
    try:
        choice = json.loads(raw)["choices"][0]
        reason = choice["finish_reason"]
        message = choice["message"] if chat else choice
        text = message["content" if chat else "text"]
        hidden = message.get("reasoning_content") or message.get("reasoning")
        ids = choice.get("token_ids")
        token_ids = None if ids is None else tuple(int(one) for one in ids)
        if not isinstance(text, str) or reason not in ("stop", "length"):
            raise ValueError(f"text {text!r:.40}, finish_reason {reason!r}")  # noqa: TRY301
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        shown = raw[:_SHOWN].decode(errors="replace")
        raise _RequestError("malformed reply", f"{error!r} in {shown!r}", retry=True) from error
    if hidden:
        raise _RequestError(
            "thinking split off",
            "the server returns the thinking apart from the answer, so the generated text cannot "
            "be put together; start it without a reasoning parser or use the completions API",
            retry=False,
        )
    stop = choice.get("stop_reason", choice.get("matched_stop"))
    return _Text(text, reason == "stop", token_ids, stop if isinstance(stop, int) else None)
