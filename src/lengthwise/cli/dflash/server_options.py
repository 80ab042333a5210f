"""The options of a server that answers prompts, for ``lengthwise dflash prepare``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

PANEL = "Server"


class Api(StrEnum):
    """How the server is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"


ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="OpenAI-compatible server that answers, such as http://localhost:8000/v1.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
ServerModel = Annotated[
    str | None,
    typer.Option(
        "--server-model",
        help="The target's name there; by default what --target says.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
ServerApi = Annotated[
    Api,
    typer.Option(
        "--server-api",
        help="completions sends the prompt's tokens (vLLM, SGLang, llama.cpp); chat sends "
        "messages, for servers without it, and leaves the template to them.",
        rich_help_panel=PANEL,
    ),
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--api-key-env",
        help="Environment variable with the server's key.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option("--concurrency", min=1, help="Requests at the same time.", rich_help_panel=PANEL),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout-seconds", help="Time for one request.", rich_help_panel=PANEL),
]
Retries = Annotated[
    int,
    typer.Option(
        "--retries",
        min=0,
        help="How often a request is sent again after an overload, error or time-out.",
        rich_help_panel=PANEL,
    ),
]
Backoff = Annotated[
    float,
    typer.Option(
        "--backoff-seconds",
        min=0.0,
        help="Wait before the first retry; it doubles with each further one.",
        rich_help_panel=PANEL,
    ),
]
