"""The options of ``lengthwise dflash prepare``: names, help texts, panels.

Those of a server that answers are in :mod:`lengthwise.cli.dflash.server_options`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class OnBadRow(StrEnum):
    """What to do with a row that breaks a rule."""

    ERROR = "error"
    SKIP = "skip"


class RowForm(StrEnum):
    """What a row of the source is."""

    AUTO = "auto"
    MESSAGES = "messages"
    PROMPT = "prompt"
    TEXT = "text"


class KeepOrDrop(StrEnum):
    """What to do with an answer that did not end."""

    KEEP = "keep"
    DROP = "drop"


class CutOrDrop(StrEnum):
    """What to do with a sample that is too long."""

    TRUNCATE = "truncate"
    DROP = "drop"


def _option(*names: str, text: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, show_default=more.pop("show_default", False), **more)


_ROWS, _TEMPLATE, _ANSWERS = "Rows", "Template", "Answers"
_SAMPLES, _MACHINE = "Samples", "Machine"

Source = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Conversations or prompts: files, globs or directories of JSONL (.gz and .zst too), "
        "JSON, Parquet or text (one prompt a line); or one Hugging Face data set, saved or by "
        "name. Rows may have messages (role/content, or ShareGPT's from/value), prompt and "
        "response, a prompt alone, or text.",
        show_default=False,
    ),
]
TargetName = Annotated[
    str, _option("--target", text="The target: a directory with a checkpoint, or a hub name.")
]
Output = Annotated[
    Path,
    _option(
        "--output",
        "-o",
        text="Directory for the samples and their card. The same command again continues there.",
    ),
]
Regenerate = Annotated[
    bool,
    typer.Option(
        "--regenerate/--keep-responses",
        help="Let the target answer anew, which the method needs for good acceptance; or keep the "
        "source's own answers.",
    ),
]
Column = Annotated[
    str | None,
    _option(
        "--column",
        "-c",
        text="Column with the messages, prompt or text; usual names are found without it.",
        rich_help_panel=_ROWS,
    ),
]
ResponseColumn = Annotated[
    str | None,
    _option("--response-column", text="Column with the response.", rich_help_panel=_ROWS),
]
Format = Annotated[
    RowForm,
    typer.Option("--format", help="What the rows are.", rich_help_panel=_ROWS),
]
Split = Annotated[
    str, typer.Option("--split", help="Split of a Hugging Face data set.", rich_help_panel=_ROWS)
]
Subset = Annotated[
    str | None,
    _option("--subset", text="Configuration of a Hugging Face data set.", rich_help_panel=_ROWS),
]
OnBad = Annotated[
    OnBadRow,
    typer.Option(
        "--on-bad",
        help="A row that breaks a rule stops everything (error), before anything is generated; or "
        "it is left out, counted and named in the card (skip).",
        rich_help_panel=_ROWS,
    ),
]
SystemPrompt = Annotated[
    str | None,
    _option(
        "--system-prompt",
        text="System message for conversations without one.",
        rich_help_panel=_TEMPLATE,
    ),
]
TemplateFile = Annotated[
    Path | None,
    _option(
        "--chat-template",
        text="Jinja file to use instead of the tokenizer's template.",
        rich_help_panel=_TEMPLATE,
    ),
]
TemplateKwargs = Annotated[
    list[str] | None,
    _option(
        "--chat-template-kwargs",
        text="Variables for the template, as a JSON object or name=value, several times if need "
        "be: enable_thinking=false. Serve the drafter with the same: one trained on thinking "
        "accepts little without it, and the other way round.",
        rich_help_panel=_TEMPLATE,
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="No template: the prompt as it is, the answer straight after it.",
        rich_help_panel=_TEMPLATE,
    ),
]
MaxNewTokens = Annotated[
    int,
    typer.Option(
        "--max-new-tokens", min=1, help="Tokens an answer may have.", rich_help_panel=_ANSWERS
    ),
]
Temperature = Annotated[
    float, typer.Option("--temperature", min=0.0, help="0 is greedy.", rich_help_panel=_ANSWERS)
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p", help="Draw from the likeliest tokens up to this.", rich_help_panel=_ANSWERS
    ),
]
TopK = Annotated[
    int,
    typer.Option("--top-k", min=0, help="Draw from so many; 0: all.", rich_help_panel=_ANSWERS),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        help="With row and turn it decides every draw, whatever else is in the batch.",
        rich_help_panel=_ANSWERS,
    ),
]
Unfinished = Annotated[
    KeepOrDrop,
    typer.Option(
        "--unfinished",
        help="Answers that did not end within --max-new-tokens.",
        rich_help_panel=_ANSWERS,
    ),
]
MaxLength = Annotated[
    int,
    typer.Option(
        "--max-length", min=2, help="Tokens of the longest sample.", rich_help_panel=_SAMPLES
    ),
]
TooLong = Annotated[
    CutOrDrop,
    typer.Option("--too-long", help="What to do with longer ones.", rich_help_panel=_SAMPLES),
]
MinLossTokens = Annotated[
    int,
    typer.Option(
        "--min-loss-tokens",
        min=1,
        help="Samples with fewer tokens of the assistant are left out.",
        rich_help_panel=_SAMPLES,
    ),
]
DeviceName = Annotated[
    str, typer.Option("--device", help="Where the target runs.", rich_help_panel=_MACHINE)
]
Dtype = Annotated[
    str,
    typer.Option("--dtype", help="Type of the target's weights.", rich_help_panel=_MACHINE),
]
BatchTokens = Annotated[
    int,
    typer.Option(
        "--batch-tokens",
        min=1,
        help="Tokens of a batch: rows x (longest prompt + --max-new-tokens).",
        rich_help_panel=_MACHINE,
    ),
]
MaxBatchSize = Annotated[
    int | None,
    _option("--max-batch-size", "-b", text="Rows of a batch.", min=1, rich_help_panel=_MACHINE),
]
ShardRows = Annotated[
    int,
    typer.Option(
        "--shard-rows",
        min=1,
        help="Rows of the source a file covers: what a killed run does again at most.",
        rich_help_panel=_MACHINE,
    ),
]
Revision = Annotated[
    str | None,
    _option("--revision", text="Of the target on the hub.", rich_help_panel=_MACHINE),
]
GgufFile = Annotated[
    str | None,
    _option("--gguf-file", text="GGUF file within the target.", rich_help_panel=_MACHINE),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run code that comes with the target.",
        rich_help_panel=_MACHINE,
    ),
]
