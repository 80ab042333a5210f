"""``lengthwise predict``: what an epoch and a run take, under every strategy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import (
    AccumulationSteps,
    BatchSizeMultipleOf,
    Boundaries,
    Buckets,
    Column,
    Epochs,
    Json,
    MaxBatchSize,
    MaxTokensOrConfig,
    NumReplicas,
    OnBad,
    OnBadChoice,
    Oversize,
    OversizeChoice,
    PadToMultipleOf,
    Quiet,
    Seed,
    ShapeSeconds,
    Source,
    Threads,
    Tokenizer,
    read_boundaries,
)
from lengthwise.cli.output import print_json
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.limits import BatchLimits
    from lengthwise.lengths.result import ScanResult
    from lengthwise.predict import Timing

Cost = Annotated[
    str,
    typer.Option(
        "--cost",
        help="What a batch takes: a file that `lengthwise calibrate` wrote, or seconds "
        "FIXED,PER_TOKEN,PER_TOKEN_SQUARED such as 0.05,2e-5,3e-9, which have no error bar.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A batching config of your own, to stand beside the others; its limits hold for all. "
        "A TOML file: what `lengthwise optimize --output` writes.",
        show_default=False,
    ),
]
Level = Annotated[
    float,
    typer.Option(
        "--level", min=0.01, max=0.999, help="How often an interval is to hold the truth."
    ),
]
SyncEvery = Annotated[
    int,
    typer.Option(
        "--sync-every",
        min=1,
        help="Steps that replicas run before they wait for each other: 1, or the accumulation "
        "steps where gradients are exchanged once for all of them.",
    ),
]
SyncSeconds = Annotated[
    float,
    typer.Option(
        "--sync-seconds",
        min=0,
        help="What each such meeting takes besides: exchanging gradients, the optimiser's step, "
        "where the cost does not contain them.",
    ),
]


def command(
    source: Source,
    cost: Cost,
    max_tokens: MaxTokensOrConfig = None,
    max_batch_size: MaxBatchSize = None,
    pad_to_multiple_of: PadToMultipleOf = 1,
    batch_size_multiple_of: BatchSizeMultipleOf = 1,
    config: ConfigFile = None,
    num_buckets: Buckets = 6,
    boundaries: Boundaries = None,
    num_replicas: NumReplicas = 1,
    accumulation_steps: AccumulationSteps = 1,
    epochs: Epochs = 1,
    level: Level = 0.9,
    sync_every: SyncEvery = 1,
    sync_seconds: SyncSeconds = 0.0,
    seconds_per_shape: ShapeSeconds = 0.0,
    oversize: Oversize = OversizeChoice.ERROR,
    seed: Seed = 0,
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What an epoch and a run take, under every strategy.

    Plans an epoch with each strategy and adds up what its batches take by the cost; a step lasts as
    long as its slowest replica. TOKENS/S are real tokens, over all replicas. The interval holds
    what is uncertain about the cost: what is common to all batches does not average out. WAITING is
    the share of the time that a replica waits for slower ones. From a histogram, bucketed and
    random batches are predicted in expectation.
    """
    from lengthwise.cli.costs import read_cost
    from lengthwise.cli.source import load_lengths
    from lengthwise.core.limits import BatchLimits
    from lengthwise.files.config_file import read_config
    from lengthwise.predict import Timing

    if (config is None) == (max_tokens is None):
        raise ConfigError("give the limits of a batch: either --max-tokens or --config")
    own = None if config is None else read_config(config)
    if max_tokens is not None:
        limits = BatchLimits(max_tokens, max_batch_size, pad_to_multiple_of, batch_size_multiple_of)
    else:
        assert own is not None
        limits = own.limits
        defaults = (None, 1, 1, OversizeChoice.ERROR)
        if (max_batch_size, pad_to_multiple_of, batch_size_multiple_of, oversize) != defaults:
            raise ConfigError("with --config, limits and --oversize are those of the config")
    timing = Timing(
        level=level,
        sync_every=sync_every,
        sync_seconds=sync_seconds,
        seconds_per_shape=seconds_per_shape,
    )
    choices = {
        "num_buckets": num_buckets,
        "boundaries": None if boundaries is None else read_boundaries(boundaries),
        "accumulation_steps": accumulation_steps,
        "seed": seed,
        "oversize": oversize.value if own is None else own.oversize,
    }
    price = read_cost("--cost", cost)
    scan = load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads)
    run = {"num_replicas": num_replicas, "num_epochs": epochs}
    result = _predict(scan, limits, own, price, choices, run, timing, quiet=quiet)
    if json:
        print_json(result)
    else:
        from lengthwise.cli.predict_view import print_prediction

        print_prediction(result)


def _predict(
    scan: ScanResult,
    limits: BatchLimits,
    own: BatchingConfig | None,
    cost: Any,
    choices: dict[str, Any],
    run: dict[str, int],
    timing: Timing,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """The JSON object of the command."""
    from lengthwise.cli.output import progress
    from lengthwise.predict import predict_strategies, usual_strategies

    strategies = usual_strategies(scan.lengths, limits, **choices)
    if own is not None:
        strategies["config"] = ("the given config", own)
    with progress("predicting", quiet=quiet) as report:
        found = predict_strategies(
            scan.lengths,
            strategies,
            cost,
            num_replicas=run["num_replicas"],
            timing=timing,
            in_expectation=scan.is_histogram,
            progress=report,
        )
    rows = {name: one.to_dict() for name, one in found.items()}
    for row in rows.values():
        row["ratio_to_sorted"] = row["tokens_per_second"] / rows["sorted"]["tokens_per_second"]
        shapes = (row["num_shapes"] or 0) * timing.seconds_per_shape
        for end in ("seconds", "low", "high"):
            whole = None if row[end] is None else row[end] * run["num_epochs"] + shapes
            row["run_seconds" if end == "seconds" else f"run_{end}"] = whole
    return {
        "num_samples": scan.histogram.num_samples,
        "real_tokens": scan.histogram.num_tokens,
        "limits": {name: getattr(limits, name) for name in limits.__slots__},
        **run,
        "level": timing.level,
        "run_of": "pooled" if own is None else "config",
        "strategies": rows,
        "notes": _notes(rows),
        "warnings": list(scan.warnings),
    }


def _notes(rows: dict[str, dict[str, Any]]) -> list[str]:
    from lengthwise.core.wording import percent

    notes = []
    expected = [name for name, row in rows.items() if row["basis"] == "expected"]
    if expected:
        notes.append(
            f"the source is a histogram: {', '.join(expected)} in expectation over epochs, the "
            f"others by one plan of these lengths"
        )
    beyond = max(row["extrapolated"] or 0.0 for row in rows.values())
    if beyond > 0.01:
        notes.append(
            f"up to {percent(beyond, 0)} of the time is in batches a tenth larger or longer than "
            f"any that the cost was measured on; measure such shapes too"
        )
    if all(row["low"] is None for row in rows.values()):
        notes.append("the cost was given as numbers, so there is no interval")
    return notes
