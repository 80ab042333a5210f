"""``lengthwise plan``: the batches of one epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import (
    Column,
    Json,
    NumReplicas,
    OnBad,
    OnBadChoice,
    Quiet,
    Source,
    Threads,
    Tokenizer,
)
from lengthwise.cli.output import print_json, print_line, print_note, print_table
from lengthwise.cli.source import load_lengths, paths_of
from lengthwise.core.stats import left_out
from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.plan import EpochPlan
    from lengthwise.core.planner import Planner
    from lengthwise.lengths.result import ScanResult

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        help="The batching config, a TOML file: what `lengthwise optimize --output` writes. It "
        "needs a table named limits, with max_tokens.",
        show_default=False,
    ),
]
Epoch = Annotated[
    int, typer.Option("--epoch", "-e", min=0, help="Which epoch, from 0; each is planned anew.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the plan to this Parquet file: one row a batch with step, rank, "
        "padded_length and the sample indices.",
        show_default=False,
    ),
]


def command(
    source: Source,
    config: ConfigFile,
    epoch: Epoch = 0,
    num_replicas: NumReplicas = 1,
    output: Output = None,
    column: Column = None,
    on_bad: OnBad = OnBadChoice.ERROR,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Plan the batches of one epoch, for every replica.

    A plan depends on the lengths, the config, the epoch and the number of replicas alone: every
    rank and machine gets the same one, so nothing has to be communicated. A STEP is one batch on
    each replica; EFFICIENCY is real / padded tokens; UTILIZATION is real tokens / (batches x
    max_tokens).

    With batch_sizing = "fixed", lengths in .npy files or in the shards that `lengthwise scan`
    writes are memory-mapped, and a plan of more than 131,072 batches is measured on some of its
    steps, unless it is written out.
    """
    from lengthwise.core.planner import Planner
    from lengthwise.core.sampled import is_large
    from lengthwise.files.config_file import read_config
    from lengthwise.files.plan_file import write_plan

    batching = read_config(config)
    arrays, row_index, sizes = _lengths(
        batching,
        source,
        lambda: load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads),
    )
    planner = Planner(
        arrays, batching, num_replicas=num_replicas, num_threads=threads, shard_sizes=sizes
    )
    plan = planner.plan(epoch)
    if output is not None:
        write_plan(plan, output, row_index)
        print_note(f"wrote {plan.num_batches:,} batches to {output}")
    found = _sampled(plan) if output is None and is_large(plan) else _measured(planner, plan)
    if json:
        print_json(found)
    else:
        _show(found, plan)


def _lengths(
    batching: BatchingConfig, source: list[str], read: Callable[[], ScanResult]
) -> tuple[npt.ArrayLike, Int64Array | None, list[int] | None]:
    """Lengths, the rows they come from if some were left out, and the samples of each shard.

    Fixed sizes need no more than arrays that are memory-mapped.
    """
    from lengthwise.lengths.mapped import map_lengths, shard_sizes

    mapped = map_lengths(paths_of(source)) if batching.batch_sizing == "fixed" else None
    if mapped is not None:
        return mapped, None, [array.size for array in mapped if array.size]
    scan = read()
    return scan.lengths, scan.row_index, shard_sizes(scan)


def _measured(planner: Planner, plan: EpochPlan) -> dict[str, Any]:
    """All there is to say about a plan."""
    from lengthwise.core.diversity import measure_diversity

    diversity = measure_diversity(
        plan.batches,
        planner.lengths,
        next_batches=planner.plan(plan.epoch + 1).batches,
        num_replicas=plan.num_replicas,
        accumulation_steps=planner.config.accumulation_steps,
    )
    return {
        **_identity(plan),
        **plan.stats.to_dict(),
        "left_out": plan.stats.left_out(),
        "measured_batches": plan.num_batches,
        "diversity": diversity.to_dict(),
    }


def _sampled(plan: EpochPlan) -> dict[str, Any]:
    """The same from some of its steps, where the whole would take long; no exact totals."""
    from lengthwise.core.sampled import sample_plan

    sample = sample_plan(plan)
    return {
        **_identity(plan),
        "num_batches": plan.num_batches,
        "num_steps": plan.num_steps,
        "num_samples": plan.num_samples,
        **plan.policy_counts,
        "left_out": left_out(plan.policy_counts),
        "efficiency": sample.efficiency,
        "utilization": sample.utilization,
        "measured_batches": sample.num_batches,
        "diversity": sample.diversity.to_dict(),
    }


def _identity(plan: EpochPlan) -> dict[str, Any]:
    return {
        "epoch": plan.epoch,
        "num_replicas": plan.num_replicas,
        "fingerprint": plan.fingerprint,
        "version": plan.version,
        "config": plan.config.to_dict(),
    }


def _show(found: dict[str, Any], plan: EpochPlan) -> None:
    config, diversity = plan.config, found["diversity"]
    repeat = diversity["partner_repeat_rate"]
    tokens = [(name, found.get(f"{name}_tokens")) for name in ("real", "padded")]
    rows = [
        ("strategy", f"{config.strategy}, {config.batch_sizing}, {config.order} order"),
        ("samples", f"{found['num_samples']:,}"),
        ("batches", f"{found['num_batches']:,}"),
        ("steps per replica", f"{found['num_steps']:,}"),
        *((f"{name} tokens", f"{count:,}") for name, count in tokens if count is not None),
        ("efficiency", percent(found["efficiency"], 2)),
        ("utilization", percent(found["utilization"], 2)),
        ("pairs that meet again next epoch", "-" if repeat is None else percent(repeat, 4)),
        ("design effect of a step (length)", f"{diversity['design_effect']:.3g}"),
        ("replica balance", percent(diversity["replica_balance"], 2)),
        ("distinct shapes", f"{diversity['num_shapes']:,}"),
        ("fingerprint", plan.fingerprint),
    ]
    noun = "replica" if plan.num_replicas == 1 else "replicas"
    title = f"epoch {plan.epoch} for {plan.num_replicas:,} {noun}"
    print_table(title, ["", "value"], rows)
    if found["measured_batches"] < plan.num_batches:
        print_line(
            f"shares and diversity are of {found['measured_batches']:,} batches of whole steps, "
            f"evenly spread; all batches are laid out with --output"
        )
    for what, count in found["left_out"].items():
        print_line(f"{what}: {count:,}")
