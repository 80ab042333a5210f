"""Every setting of a preparation; those that decide what comes out are compared on resume."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

RowFormat = Literal["auto", "messages", "prompt", "text"]
Mode = Literal["regenerate", "keep-responses"]
ServerApi = Literal["completions", "chat"]

ROW_FORMATS = ("auto", "messages", "prompt", "text")
MODES = ("regenerate", "keep-responses")
SERVER_APIS = ("completions", "chat")


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _number(name: str, value: object, least: float, most: float, *, open_at: float) -> None:
    fine = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fine or not least <= value <= most or value == open_at:  # type: ignore[operator]
        opening = "above" if open_at == least else "from"
        raise ConfigError(f"{name} must be {opening} {least:g} to {most:g}, got {value!r}")


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How a row of the source becomes a conversation.

    Attributes:
        format: "messages" (role/content or ShareGPT's from/value), "prompt" (with or without a
            response), "text", or "auto": what the row's column names say.
        column: the column with the messages, prompt or text; None looks for the usual names.
        response_column: the column with the response to a prompt; None looks for usual names.
        split: split of a Hugging Face data set.
        subset: configuration of a Hugging Face data set; None takes its default.
        on_bad: "error" stops at a row that breaks a rule, "skip" counts it and goes on.
    """

    format: RowFormat = "auto"
    column: str | None = None
    response_column: str | None = None
    split: str = "train"
    subset: str | None = None
    on_bad: Literal["error", "skip"] = "error"

    def __post_init__(self) -> None:
        """Refuse what is not one of the choices."""
        _one_of("format", self.format, ROW_FORMATS)
        _one_of("on_bad", self.on_bad, ("error", "skip"))


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """How a conversation becomes text.

    Attributes:
        chat_template: Jinja source that replaces the tokenizer's own; None keeps that.
        kwargs: variables for the template, such as ``{"enable_thinking": False}``.
        system_prompt: put before conversations that have no system message.
        plain: no template: the prompt as it is, the response straight after it.
    """

    chat_template: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        """Refuse settings of a template beside ``plain``."""
        if self.plain and (self.chat_template or self.kwargs or self.system_prompt):
            raise ConfigError(
                "plain means that no chat template is used; leave out chat_template, "
                "chat_template_kwargs and system_prompt, or plain"
            )


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How answers are generated.

    Attributes:
        max_new_tokens: tokens an answer may have.
        temperature: 0 is greedy.
        top_p: smallest set of tokens of at least this probability that is drawn from.
        top_k: at most so many tokens are drawn from; 0 means all.
        seed: with the row and the turn it decides every draw.
        unfinished: what happens to an answer that did not end within ``max_new_tokens``.
    """

    max_new_tokens: int = 2048
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    unfinished: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        """Check every range."""
        require_int("max_new_tokens", self.max_new_tokens, least=1, most=2**24)
        require_int("top_k", self.top_k, least=0, most=2**31)
        require_int("seed", self.seed, least=0, most=2**63 - 1)
        _number("temperature", self.temperature, 0.0, 100.0, open_at=-1.0)
        _number("top_p", self.top_p, 0.0, 1.0, open_at=0.0)
        _one_of("unfinished", self.unfinished, ("keep", "drop"))


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """Which samples are kept.

    Attributes:
        max_length: tokens of the longest sample.
        too_long: "truncate" cuts a longer sample at its end, "drop" leaves it out.
        min_loss_tokens: a sample needs at least so many tokens with loss; an anchor and the token
            after it both need one, so fewer than 2 give nothing to learn from.
    """

    max_length: int = 4096
    too_long: Literal["truncate", "drop"] = "truncate"
    min_loss_tokens: int = 2

    def __post_init__(self) -> None:
        """Check every range."""
        require_int("max_length", self.max_length, least=2, most=2**31 - 1)
        require_int("min_loss_tokens", self.min_loss_tokens, least=1, most=2**31 - 1)
        _one_of("too_long", self.too_long, ("truncate", "drop"))


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """An OpenAI-compatible server that answers instead of a built-in target.

    Attributes:
        url: with the version, such as ``http://localhost:8000/v1``.
        model: name of the model there.
        api: "completions" sends the exact tokens of the prompt; "chat" sends messages and leaves
            the template to the server.
        api_key: secret; never written anywhere.
        concurrency: requests at the same time.
        timeout_seconds: time for one request.
        retries: how often a failed request is sent again.
        backoff_seconds: wait before the first retry; doubles with every further one.
    """

    url: str
    model: str
    api: ServerApi = "completions"
    api_key: str | None = field(default=None, repr=False)
    concurrency: int = 16
    timeout_seconds: float = 600.0
    retries: int = 4
    backoff_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Check the address and every range."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"server must be a URL such as http://localhost:8000/v1, got {self.url!r}"
            )
        if not self.model:
            raise ConfigError("server_model must name the model that the server runs")
        _one_of("server_api", self.api, SERVER_APIS)
        require_int("concurrency", self.concurrency, least=1, most=4096)
        require_int("retries", self.retries, least=0, most=100)
        _number("timeout_seconds", self.timeout_seconds, 0.0, 86_400.0, open_at=0.0)
        _number("backoff_seconds", self.backoff_seconds, 0.0, 3600.0, open_at=-1.0)


@dataclass(frozen=True, slots=True)
class PrepareConfig:
    """All settings of a preparation.

    Attributes:
        target: name or path of the target, whose tokenizer makes the tokens.
        mode: "regenerate" lets the target answer, "keep-responses" takes the source's answers.
        revision: of the target on the hub.
        gguf_file: GGUF file within ``target``.
        dtype: of the built-in target's weights while it answers.
        rows: from rows to conversations.
        template: from conversations to text.
        generation: how answers are generated.
        samples: which samples are kept.
        server: answers instead of the built-in target; None uses the built-in one.
    """

    target: str
    mode: Mode = "regenerate"
    revision: str | None = None
    gguf_file: str | None = None
    dtype: str = "auto"
    rows: RowSettings = field(default_factory=RowSettings)
    template: TemplateSettings = field(default_factory=TemplateSettings)
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    samples: SampleSettings = field(default_factory=SampleSettings)
    server: ServerSettings | None = None

    def __post_init__(self) -> None:
        """Refuse combinations that cannot work."""
        _one_of("mode", self.mode, MODES)
        if not self.target:
            raise ConfigError("target must be a model's name or path")
        if self.mode == "keep-responses" and self.server is not None:
            raise ConfigError("keep-responses generates nothing; leave out the server")
        chat = self.server is not None and self.server.api == "chat"
        if chat and (self.template.plain or self.template.chat_template):
            raise ConfigError(
                "with server_api 'chat' the server's own template is used; plain and "
                "chat_template need server_api 'completions'"
            )

    def decisive(self) -> dict[str, Any]:
        """The settings that decide what comes out, but for the template, by flat names."""
        server = self.server
        own = ("target", "mode", "revision", "gguf_file", "dtype")
        return {
            **{name: getattr(self, name) for name in own},
            **asdict(self.rows),
            **asdict(self.generation),
            **asdict(self.samples),
            "server_model": server and server.model,
            "server_api": server and server.api,
        }
