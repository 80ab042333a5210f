"""Options that several commands share: one name, one help text, one check.

Use them as annotations: ``def command(source: Source, max_tokens: MaxTokens, json: Json = False)``.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.errors import ConfigError


class OnBadChoice(StrEnum):
    """What to do with a row whose length cannot be used."""

    ERROR = "error"
    SKIP = "skip"


class OversizeChoice(StrEnum):
    """What to do with a sample that fits no batch."""

    ERROR = "error"
    DROP = "drop"
    TRUNCATE = "truncate"
    SINGLE = "single"


Source = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Where the lengths are: files, globs or directories of Parquet, Arrow/Feather, JSONL "
        "(.gz and .zst too), CSV/TSV, .npy/.npz or text; a saved Hugging Face dataset; or a "
        "histogram (CSV with the header length,count).",
        show_default=False,
    ),
]

Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        "-c",
        help="Column with the lengths (whole numbers) or the tokens (lists, or text together with "
        "--tokenizer). Usual names such as seq_len, length, num_tokens and input_ids are found "
        "without it.",
        show_default=False,
    ),
]

OnBad = Annotated[
    OnBadChoice,
    typer.Option(
        "--on-bad",
        help="What to do with a row whose length is null, zero, negative, fractional or "
        "unreadable: stop (error), or leave it out, count it and list the first ones (skip).",
    ),
]

Tokenizer = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        help="A tokenizer.json file (or a directory with one), to count the tokens of text. Slow "
        "beside reading a column of lengths; save the result with scan --output.",
        show_default=False,
    ),
]

MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "-t",
        min=1,
        help="Padded tokens that one batch may hold: samples x longest sample of the batch.",
        show_default=False,
    ),
]

MaxTokensOrConfig = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-t",
        min=1,
        help="Padded tokens that one batch may hold: samples x longest sample of the batch. Needed "
        "without --config.",
        show_default=False,
    ),
]

MaxBatchSize = Annotated[
    int | None,
    typer.Option(
        "--max-batch-size",
        "-b",
        min=1,
        help="Samples that one batch may hold; without it only --max-tokens limits a batch.",
        show_default=False,
    ),
]

PadToMultipleOf = Annotated[
    int,
    typer.Option(
        "--pad-to-multiple-of",
        min=1,
        help="The longest sample of a batch is rounded up to a multiple of this (8 or 64 suit "
        "tensor cores).",
    ),
]

BatchSizeMultipleOf = Annotated[
    int,
    typer.Option(
        "--batch-size-multiple-of",
        min=1,
        help="Samples of a batch are rounded down to a multiple of this.",
    ),
]

NumBuckets = Annotated[
    int | None,
    typer.Option(
        "--num-buckets",
        "-k",
        min=1,
        help="Number of buckets (length classes; a batch takes its samples from one).",
        show_default=False,
    ),
]

NumReplicas = Annotated[
    int,
    typer.Option(
        "--num-replicas",
        "-r",
        min=1,
        help="Replicas (data-parallel ranks) that train together; each gets one batch a step.",
    ),
]

AccumulationSteps = Annotated[
    int,
    typer.Option(
        "--accumulation-steps",
        "-a",
        min=1,
        help="Batches that an optimiser step takes on each replica; with --num-replicas it says "
        "how many batches must represent the data together.",
    ),
]

Buckets = Annotated[
    int,
    typer.Option("--num-buckets", "-k", min=1, help="Buckets of the bucketed strategies."),
]

Boundaries = Annotated[
    str | None,
    typer.Option(
        "--boundaries",
        help="Boundaries of your own to stand beside the others, such as 0,770,1216,8192: rising "
        "whole numbers; a bucket holds lengths from one number up to, not including, the next.",
        show_default=False,
    ),
]

Oversize = Annotated[
    OversizeChoice,
    typer.Option(
        "--oversize",
        help="What to do with a sample that fits no batch: stop and list them (error), leave it "
        "out (drop), count on the loader to cut it (truncate), or give it a batch of its own that "
        "exceeds --max-tokens (single).",
    ),
]

Seed = Annotated[
    int,
    typer.Option(
        "--seed", min=0, help="Number that fixes every shuffle; the same seed, the same plan."
    ),
]

Epochs = Annotated[int, typer.Option("--epochs", "-e", min=1, help="Epochs of the run.")]

ShapeSeconds = Annotated[
    float,
    typer.Option(
        "--seconds-per-shape",
        min=0,
        help="What a new shape (samples, padded length) takes when the run meets it first: a "
        "compiler's work.",
    ),
]

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object on standard output; progress and warnings go to standard "
        "error.",
    ),
]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress; warnings and errors still show."),
]

Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads that read files; by default one per CPU core."),
]

PlanAgain = Annotated[
    bool,
    typer.Option(
        "--plan/--no-plan",
        help="Plan the run again from its config and data: names the samples behind a spike, "
        "compares with other plans. Reads the loss masks of all samples once.",
    ),
]


def read_boundaries(text: str) -> tuple[int, ...]:
    """Whole numbers between commas or spaces; brackets around them are allowed.

    Raises:
        ConfigError: a part is no whole number.
    """
    parts = text.strip().strip("[]()").replace(",", " ").split()
    for part in parts:
        if not part.isdecimal():
            raise ConfigError(
                f"--boundaries takes whole numbers such as 0,770,1216,8192; got {part!r} in "
                f"{text!r}"
            )
    return tuple(int(part) for part in parts)
