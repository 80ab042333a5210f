"""``lengthwise calibrate``: what a step of a model costs here, in seconds and memory."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import (
    Column,
    Json,
    MaxBatchSize,
    MaxTokens,
    OnBad,
    OnBadChoice,
    PadToMultipleOf,
    Quiet,
    Source,
    Threads,
    Tokenizer,
)
from lengthwise.cli.output import print_json, print_note, print_warning
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.calibrate import Budget, Calibration
    from lengthwise.calibrate.steps import Step
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits


class DtypeChoice(StrEnum):
    """What a model computes in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


ModelClass = Annotated[
    str,
    typer.Option(
        "--model-class",
        help="Class of the model in transformers, such as Qwen3ForCausalLM; Qwen3Model is the "
        "same without the head. It gets random weights, and nothing is downloaded.",
        show_default=False,
    ),
]
ModelConfig = Annotated[
    Path,
    typer.Option(
        "--model-config",
        help="The model's config.json, or a directory with one.",
        show_default=False,
    ),
]
ForwardOnly = Annotated[
    bool,
    typer.Option(
        "--forward-only", help="Time the forward pass alone, instead of forward and backward."
    ),
]
Device = Annotated[
    str, typer.Option("--device", "-d", help="Where the model runs: cpu, cuda or cuda:1.")
]
Dtype = Annotated[
    DtypeChoice | None,
    typer.Option(
        "--dtype",
        help="What it computes in; by default bfloat16 on cuda and float32 on cpu.",
        show_default=False,
    ),
]
NumShapes = Annotated[
    int, typer.Option("--num-shapes", min=4, help="Shapes of batches to measure, at most.")
]
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats",
        min=1,
        help="Timed steps of each shape; their scatter is the noise, so one is too few.",
    ),
]
MaxSeconds = Annotated[
    float,
    typer.Option(
        "--max-seconds", min=1.0, help="No round over the shapes begins that would end later."
    ),
]
FindBudget = Annotated[
    bool,
    typer.Option(
        "--find-budget",
        help="Then search for the largest safe --max-tokens, by trying; on cuda only, since a "
        "processor's memory has no end that a program survives.",
    ),
]
Buckets = Annotated[
    int,
    typer.Option("--num-buckets", "-k", min=1, help="Buckets to find a budget for."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the calibration there, as JSON; predict --cost and optimize --objective read "
        "it.",
        show_default=False,
    ),
]


def command(
    source: Source,
    max_tokens: MaxTokens,
    model_class: ModelClass,
    model_config: ModelConfig,
    max_batch_size: MaxBatchSize = None,
    pad_to_multiple_of: PadToMultipleOf = 1,
    forward_only: ForwardOnly = False,
    device: Device = "cpu",
    dtype: Dtype = None,
    num_shapes: NumShapes = 24,
    repeats: Repeats = 4,
    max_seconds: MaxSeconds = 120.0,
    find_budget: FindBudget = False,
    num_buckets: Buckets = 6,
    output: Output = None,
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure what a step of a model costs on this machine, and fit a cost to it.

    Times a few shapes of batches that a plan of your lengths makes, each several times in mixed
    order, and fits seconds = fixed + a * n * m + b * n * m^2 (n samples, padded to m tokens), or a
    table where that fits badly. Says how far it is to be trusted: the error at shapes that the
    fit has not seen, and the noise. With --output the cost can be optimised for and predicted
    with. Your own training step is measured from Python: lengthwise.calibrate.
    """
    from lengthwise.calibrate.extra import require_scipy
    from lengthwise.cli.source import load_lengths
    from lengthwise.core.limits import BatchLimits

    require_scipy()
    on_cuda = device.startswith("cuda")
    if find_budget and not on_cuda:
        raise ConfigError(
            "--find-budget needs --device cuda; a processor that runs out of memory kills the "
            "process. From Python, lengthwise.calibrate.largest_budget takes any step and limit"
        )
    chosen = "bfloat16" if on_cuda else "float32"
    settings = {
        "what": "forward" if forward_only else "forward_backward",
        "device": device,
        "dtype": chosen if dtype is None else dtype.value,
        "repeats": repeats,
        "max_seconds": max_seconds,
    }
    limits = BatchLimits(max_tokens, max_batch_size, pad_to_multiple_of)
    scan = load_lengths(
        source, column, on_bad, tokenizer, quiet=quiet, threads=threads, limits=limits
    )
    step = _make_step(model_class, model_config, settings, quiet=quiet)
    found = _calibrate(step, scan.histogram, limits, num_shapes, settings, quiet=quiet)
    budget = None
    if find_budget:
        budget = _find_budget(step, found, scan.histogram, limits, num_buckets, quiet=quiet)
    _show(found, budget, output, list(scan.warnings), as_json=json)


def _make_step(model_class: str, config: Path, settings: dict[str, Any], *, quiet: bool) -> Step:
    from lengthwise.calibrate import from_config, stopwatch_for

    stopwatch_for(settings["device"])  # a device that is not there fails before the model is made
    if not quiet:
        print_note(f"making {model_class} with random weights on {settings['device']}")
    return from_config(
        model_class,
        config,
        device=settings["device"],
        dtype=settings["dtype"],
        backward=settings["what"] == "forward_backward",
    )


def _calibrate(
    step: Step,
    hist: LengthHistogram,
    limits: BatchLimits,
    num_shapes: int,
    settings: dict[str, Any],
    *,
    quiet: bool,
) -> Calibration:
    from lengthwise.calibrate import calibrate, choose_shapes
    from lengthwise.cli.output import progress

    shapes = choose_shapes(limits, hist, num_shapes)
    with progress("measuring", quiet=quiet) as report:
        return calibrate(step, shapes, progress=report, **settings)


def _find_budget(
    step: Step,
    found: Calibration,
    hist: LengthHistogram,
    limits: BatchLimits,
    num_buckets: int,
    *,
    quiet: bool,
) -> Budget:
    from lengthwise.calibrate import device_bytes, largest_budget, stopwatch_for
    from lengthwise.cli.output import progress
    from lengthwise.core.boundaries import optimize_boundaries
    from lengthwise.core.limits import MAX_TOKENS_LIMIT

    usable = hist.between(1, limits.longest_allowed + 1)
    edges = optimize_boundaries(usable, limits, num_buckets).boundaries
    longest = {limits.padded_length(min(edge - 1, usable.longest)) for edge in edges[1:]}
    with progress("searching the largest budget", quiet=quiet) as report:
        return largest_budget(
            step,
            sorted(longest),
            stopwatch=stopwatch_for(found.device),
            most_tokens=min(64 * limits.max_tokens, MAX_TOKENS_LIMIT),
            max_batch_size=limits.max_batch_size,
            memory=found.memory,
            limit_bytes=None if found.memory is None else device_bytes(found.device),
            progress=report,
        )


def _show(
    found: Calibration,
    budget: Budget | None,
    output: Path | None,
    warnings: list[str],
    *,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from lengthwise.calibrate import write_calibration
    from lengthwise.cli.calibrate_view import doubts_of, print_calibration

    doubts = doubts_of(found)
    for doubt in doubts:
        print_warning(doubt)
    if output is not None:
        write_calibration(found, output)
    if as_json:
        values = found.to_dict()
        values["budget"] = None if budget is None else asdict(budget)
        values["warnings"] = [*warnings, *doubts]
        print_json(values)
    else:
        print_calibration(found, budget)
    if output is not None:
        print_note(f"calibration: {output}")
