"""``lengthwise simulate``: a pipeline of targets and drafters on paper."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import (
    Column,
    Epochs,
    Json,
    MaxBatchSize,
    MaxTokensOrConfig,
    OnBad,
    OnBadChoice,
    Quiet,
    Source,
    Threads,
    Tokenizer,
)
from lengthwise.cli.output import print_json
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.cli.simulate_case import Case
    from lengthwise.core.config import BatchingConfig

TargetCost = Annotated[
    str,
    typer.Option(
        "--target-cost",
        help="What the target takes for a batch: a file that `lengthwise calibrate` wrote, or "
        "seconds FIXED,PER_TOKEN,PER_TOKEN_SQUARED such as 0.05,2e-5,3e-9.",
        show_default=False,
    ),
]
DrafterCost = Annotated[
    str,
    typer.Option(
        "--drafter-cost",
        help="The same of one drafter device, forward and backward: for the target's batch as it "
        "is, or with --pool-batches for its part of a step (one row of its real tokens).",
        show_default=False,
    ),
]
BytesPerToken = Annotated[
    int,
    typer.Option(
        "--bytes-per-token",
        min=0,
        help="Features of a token that wait between target and drafter: taps x hidden size x 2 "
        "in bfloat16.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The batching config, a TOML file: what `lengthwise optimize --output` writes.",
        show_default=False,
    ),
]
NumTargets = Annotated[int, typer.Option("--num-targets", min=1, help="Target devices.")]
NumDrafters = Annotated[int, typer.Option("--num-drafters", min=1, help="Drafter devices.")]
Independent = Annotated[
    bool,
    typer.Option(
        "--independent",
        help="Each drafter device takes a step of its own; else all are at the same step.",
    ),
]
Bandwidth = Annotated[
    float | None,
    typer.Option(
        "--bandwidth",
        min=1,
        help="Bytes a second from each device to the other side; without it copies take no time.",
        show_default=False,
    ),
]
ChannelBytes = Annotated[
    int | None,
    typer.Option(
        "--channel-bytes",
        min=0,
        help="Bytes that may wait between targets and drafters. Without it what steps need, and "
        "two of the largest batches a target on top.",
        show_default=False,
    ),
]
PoolBatches = Annotated[
    int | None,
    typer.Option(
        "--pool-batches",
        min=1,
        help="Mix the target's batches again: steps draw from a pool of so many. Without it each "
        "batch of the target is one of the drafter.",
        show_default=False,
    ),
]
TokensPerStep = Annotated[
    int | None,
    typer.Option(
        "--tokens-per-step",
        min=1,
        help="With --pool-batches: real tokens of a step, over all drafter devices.",
        show_default=False,
    ),
]
FeedSeconds = Annotated[
    float, typer.Option("--feed-seconds", min=0, help="To read the samples of a batch.")
]
Split = Annotated[
    int | None,
    typer.Option(
        "--best-split",
        min=2,
        help="Share out so many devices in the best way, instead of --num-targets and "
        "--num-drafters.",
        show_default=False,
    ),
]


def _read_scenario(context: typer.Context, path: Path | None) -> Path | None:
    """Take a file's values for the options that are not given."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is no TOML file: {error}") from None
    known = {parameter.name for parameter in context.command.params} - {"source", "scenario"}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(
            f"{path}: no such options: {', '.join(unknown)}; there are "
            f"{', '.join(sorted(str(name) for name in known))}"
        )
    context.default_map = {**(context.default_map or {}), **values}
    return path


Scenario = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        is_eager=True,
        callback=_read_scenario,
        help="A TOML file with options of this command, such as num_targets = 6; those on the "
        "command line go first.",
        show_default=False,
    ),
]


def command(
    source: Source,
    target_cost: TargetCost,
    drafter_cost: DrafterCost,
    bytes_per_token: BytesPerToken,
    config: ConfigFile = None,
    max_tokens: MaxTokensOrConfig = None,
    max_batch_size: MaxBatchSize = None,
    num_targets: NumTargets = 1,
    num_drafters: NumDrafters = 1,
    best_split: Split = None,
    independent: Independent = False,
    bandwidth: Bandwidth = None,
    channel_bytes: ChannelBytes = None,
    pool_batches: PoolBatches = None,
    tokens_per_step: TokensPerStep = None,
    feed_seconds: FeedSeconds = 0.0,
    epochs: Epochs = 1,
    scenario: Scenario = None,  # noqa: ARG001 - its callback has put it into the other options
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How many target and drafter devices, what throughput: a pipeline before it is built.

    Plans an epoch, then simulates it: targets run its batches, at most two each; features wait in
    a channel of bounded size; the drafter learns from them in order. Says what comes out (real
    tokens a second), who waits for whom, what is the bottleneck, and what one device more of each
    kind would buy.
    """
    from lengthwise.cli.costs import read_cost
    from lengthwise.cli.simulate_case import Case
    from lengthwise.cli.simulate_view import print_simulation
    from lengthwise.cli.source import load_lengths

    batching = _batching(config, max_tokens, max_batch_size)
    costs = read_cost("--target-cost", target_cost), read_cost("--drafter-cost", drafter_cost)
    scan = load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads)
    case = Case(
        scan.lengths,
        batching,
        costs,
        bytes_per_token=bytes_per_token,
        pool=_pool(pool_batches, tokens_per_step),
        feed_seconds=feed_seconds,
        channel_bytes=channel_bytes,
        bandwidth=math.inf if bandwidth is None else bandwidth,
        independent=independent,
    )
    result = _simulate(case, (num_targets, num_drafters), best_split, epochs)
    if json:
        print_json(result)
    else:
        print_simulation(result)


def _batching(
    config: Path | None, max_tokens: int | None, max_batch_size: int | None
) -> BatchingConfig:
    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.limits import BatchLimits
    from lengthwise.files.config_file import read_config

    if (config is None) == (max_tokens is None):
        raise ConfigError("give either --config or --max-tokens")
    if config is not None:
        if max_batch_size is not None:
            raise ConfigError("--max-batch-size goes with --max-tokens; a config has its own")
        return read_config(config)
    assert max_tokens is not None, "checked above"
    return BatchingConfig(limits=BatchLimits(max_tokens, max_batch_size))


def _pool(pool_batches: int | None, tokens_per_step: int | None) -> tuple[int, int] | None:
    if pool_batches is None and tokens_per_step is None:
        return None
    if pool_batches is None or tokens_per_step is None:
        raise ConfigError("--pool-batches and --tokens-per-step belong together")
    return pool_batches, tokens_per_step


def _simulate(
    case: Case, split: tuple[int, int], num_devices: int | None, epochs: int
) -> dict[str, Any]:
    from lengthwise.simulate import best_split, one_more

    splits = []
    if num_devices is not None:
        found = best_split(case.workload, num_devices, case.machines)
        splits = [one.to_dict() for one in found.splits]
        split = found.best.machines.num_targets, found.best.machines.num_drafters
    band = case.band(*split)
    more = one_more(case.workload, case.machines, split)
    return {
        **band.to_dict(),
        "efficiency": case.efficiency,
        "epochs": epochs,
        "eta_seconds": band.middle.seconds * epochs,
        "one_more": more.gains,
        "splits": splits,
        "finding": None if band.middle.bottleneck is None else band.middle.bottleneck.finding,
    }
