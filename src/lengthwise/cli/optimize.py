"""``lengthwise optimize``: the bucket boundaries that cost the least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.objective import (
    FixedSeconds,
    ObjectiveOption,
    PerSquare,
    PerToken,
    read_objective,
)
from lengthwise.cli.optimize_search import against_least_padding, kept_config, search_settings
from lengthwise.cli.options import (
    BatchSizeMultipleOf,
    Column,
    Epochs,
    Json,
    MaxBatchSize,
    MaxTokens,
    NumReplicas,
    OnBad,
    OnBadChoice,
    Oversize,
    OversizeChoice,
    PadToMultipleOf,
    Quiet,
    ShapeSeconds,
    Source,
    Threads,
    Tokenizer,
    read_boundaries,
)
from lengthwise.cli.output import print_json, print_note
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.core.cost import Objective
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits
    from lengthwise.lengths.result import ScanResult

DEFAULT_BUCKETS = 6


Buckets = Annotated[
    int | None,
    typer.Option(
        "--num-buckets",
        "-k",
        min=1,
        help="Number of buckets (length classes; a batch takes its samples from one). Without it "
        f"{DEFAULT_BUCKETS}; with --curve the largest number, without it 64.",
        show_default=False,
    ),
]
CurveFlag = Annotated[
    bool,
    typer.Option(
        "--curve", help="Find the best boundaries for every number of buckets and recommend one."
    ),
]
PadToBoundary = Annotated[
    bool,
    typer.Option(
        "--pad-to-boundary",
        help="Pad each batch to the longest length of its bucket, not its own: one shape a bucket, "
        "for compiled graphs.",
    ),
]
Boundaries = Annotated[
    str | None,
    typer.Option(
        "--boundaries",
        help="Boundaries of your own to stand beside, such as 0,770,1216,8192.",
        show_default=False,
    ),
]
Search = Annotated[
    bool | None,
    typer.Option(
        "--search/--no-search",
        help="Plan and rank other settings as well: pools, windows, numbers of buckets, smaller "
        "budgets, lengths rounded up. By default where --objective is a cost, without "
        "--pad-to-boundary.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write a batching config (TOML) for `lengthwise plan`: these boundaries, or after a "
        "search the setting to take.",
        show_default=False,
    ),
]


def command(
    source: Source,
    max_tokens: MaxTokens,
    max_batch_size: MaxBatchSize = None,
    pad_to_multiple_of: PadToMultipleOf = 1,
    batch_size_multiple_of: BatchSizeMultipleOf = 1,
    num_buckets: Buckets = None,
    curve: CurveFlag = False,
    objective: ObjectiveOption = "padding",
    fixed_seconds: FixedSeconds = 0.0,
    seconds_per_token: PerToken = 0.0,
    seconds_per_token_squared: PerSquare = 0.0,
    pad_to_boundary: PadToBoundary = False,
    boundaries: Boundaries = None,
    search: Search = None,
    num_replicas: NumReplicas = 1,
    epochs: Epochs = 1,
    seconds_per_shape: ShapeSeconds = 0.0,
    oversize: Oversize = OversizeChoice.ERROR,
    output: Output = None,
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the bucket boundaries that waste the least, and what they are expected to cost.

    Samples of a BUCKET are shuffled and packed greedily: one joins the open batch if samples x
    longest stays within --max-tokens. EFFICIENCY is real tokens / padded tokens; UTILIZATION is
    real tokens / (batches x max_tokens). Boundaries are K + 1 numbers; a bucket holds lengths from
    one up to, not including, the next. The figures are exact expectations, not simulations.
    """
    from lengthwise.cli.source import load_lengths
    from lengthwise.core.limits import BatchLimits
    from lengthwise.predict import Timing
    from lengthwise.predict.pricing import Pricing

    limits = BatchLimits(max_tokens, max_batch_size, pad_to_multiple_of, batch_size_multiple_of)
    coefficients = (fixed_seconds, seconds_per_token, seconds_per_token_squared)
    name, cost = read_objective(objective, coefficients)
    wanted: Objective = name if cost is None else Pricing.of(cost, 0.9).model
    if search is None:
        search = cost is not None and objective != "seconds" and not pad_to_boundary
    if search and cost is None:
        raise ConfigError(f"--search ranks settings by time; --objective {name} is no cost")
    if search and pad_to_boundary:
        raise ConfigError("--search weighs padding to boundaries itself; drop --pad-to-boundary")
    if not search and (num_replicas, epochs, seconds_per_shape) != (1, 1, 0.0):
        raise ConfigError("--num-replicas, --epochs and --seconds-per-shape belong to --search")
    given = None if boundaries is None else read_boundaries(boundaries)
    if output is not None and output.is_dir():
        raise ConfigError(f"--output {output} is a directory; name a file, such as batching.toml")
    scan = load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads)
    hist, notes = apply_oversize(scan, limits, oversize)
    result = _optimize(
        hist, limits, wanted, num_buckets, given, curve=curve, ceiling=pad_to_boundary
    )
    result["notes"] = [*result["notes"], *notes]
    if search:
        assert cost is not None
        choices = {
            "num_buckets": None if curve else num_buckets,
            "num_replicas": num_replicas,
            "num_epochs": epochs,
            "oversize": oversize.value,
            "timing": Timing(seconds_per_shape=seconds_per_shape),
        }
        result["settings"] = search_settings(scan.lengths, limits, cost, choices, quiet=quiet)
    if output is not None:
        _write(result, limits, oversize, output, pad_to_boundary=pad_to_boundary)
    if json:
        print_json(result)
    else:
        from lengthwise.cli.optimize_view import print_optimum

        print_optimum(result, hist)
    if output is not None:
        print_note(f"wrote {output}")


def apply_oversize(
    scan: ScanResult, limits: BatchLimits, policy: OversizeChoice
) -> tuple[LengthHistogram, list[str]]:
    """The histogram of what goes into buckets, and a note on what the policy did.

    Raises:
        OversizeError: a sample fits no batch, and the policy is to stop.
    """
    import numpy as np

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.errors import OversizeError

    hist, most = scan.histogram, limits.longest_allowed
    if not hist.num_samples or hist.longest <= most:
        return hist, []
    over = hist.between(most + 1, hist.longest + 1).num_samples
    if policy is OversizeChoice.ERROR:
        rows = np.flatnonzero(scan.lengths > most)[:5]
        places = rows if scan.row_index is None else scan.row_index[rows]
        shown = ", ".join(
            f"row {place:,} ({scan.lengths[row]:,} tokens)"
            for place, row in zip(places, rows, strict=True)
        )
        more = f" and {over - len(rows):,} more" if over > len(rows) else ""
        raise OversizeError(
            f"{over:,} samples are longer than a batch may be ({most:,} tokens): {shown}{more}. "
            f"Raise --max-tokens, or choose --oversize drop, truncate or single"
        )
    kept = hist.between(0, most + 1)
    if policy is OversizeChoice.TRUNCATE:
        kept = kept + LengthHistogram.from_counts([most], [over])
        return kept, [f"{over:,} samples count as cut to {most:,} tokens"]
    what = "left out" if policy is OversizeChoice.DROP else "in batches of their own, not counted"
    return kept, [f"{over:,} samples longer than {most:,} tokens are {what}"]


def _optimize(
    hist: LengthHistogram,
    limits: BatchLimits,
    objective: Objective,
    num_buckets: int | None,
    given: tuple[int, ...] | None,
    *,
    curve: bool,
    ceiling: bool,
) -> dict[str, Any]:
    """The JSON object of the command."""
    from lengthwise.core.baselines import compare_baselines
    from lengthwise.core.boundaries import optimize_boundaries
    from lengthwise.core.curve import optimize_curve

    more: dict[str, Any]
    if curve:
        whole = optimize_curve(hist, limits, num_buckets or 64, objective, pad_to_boundary=ceiling)
        best, more = whole.best, whole.to_dict()
    else:
        number = DEFAULT_BUCKETS if num_buckets is None else num_buckets
        best = optimize_boundaries(hist, limits, number, objective, pad_to_boundary=ceiling)
        more = {}
    baselines = compare_baselines(
        hist, limits, best.num_buckets, objective, pad_to_boundary=ceiling, given=given
    )
    found = {"num_buckets": best.num_buckets, **best.to_dict()}
    if not isinstance(objective, str):
        more["least_padding"] = against_least_padding(
            found, hist, limits, objective, ceiling=ceiling
        )
    return {
        **found,
        "num_samples": hist.num_samples,
        "pad_to_boundary": ceiling,
        "limits": {name: getattr(limits, name) for name in limits.__slots__},
        "baselines": {name: baseline.to_dict() for name, baseline in baselines.items()},
        **more,
    }


def _write(
    result: dict[str, Any],
    limits: BatchLimits,
    oversize: OversizeChoice,
    output: Path,
    *,
    pad_to_boundary: bool,
) -> None:
    from lengthwise.core.config import BatchingConfig
    from lengthwise.files.config_file import write_config

    config = BatchingConfig(
        limits=limits,
        strategy="bucketed",
        boundaries=tuple(result["boundaries"]),
        pad_to_boundary=pad_to_boundary,
        oversize=oversize.value,
    ).to_dict()
    kept = {"strategy", "boundaries", "seed", "limits"}
    if pad_to_boundary:
        kept.add("pad_to_boundary")
    if oversize is not OversizeChoice.ERROR:
        kept.add("oversize")
    values = {key: value for key, value in config.items() if key in kept}
    if "settings" in result:
        settings = result["settings"]
        values = kept_config(settings["candidates"][settings["best"]])
    output.parent.mkdir(parents=True, exist_ok=True)
    write_config(values, output)
