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
from lengthwise.cli.source import load_lengths
from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from lengthwise.core.diversity import Diversity
    from lengthwise.core.plan import EpochPlan

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
    """
    from lengthwise.core.diversity import measure_diversity
    from lengthwise.core.planner import Planner
    from lengthwise.files.config_file import read_config
    from lengthwise.files.plan_file import write_plan

    batching = read_config(config)
    scan = load_lengths(source, column, on_bad, tokenizer, quiet=quiet, threads=threads)
    planner = Planner(scan.lengths, batching, num_replicas=num_replicas, num_threads=threads)
    plan = planner.plan(epoch)
    diversity = measure_diversity(
        plan.batches,
        planner.lengths,
        next_batches=planner.plan(epoch + 1).batches,
        num_replicas=num_replicas,
        accumulation_steps=planner.config.accumulation_steps,
    )
    if output is not None:
        write_plan(plan, output, scan.row_index)
        print_note(f"wrote {plan.num_batches:,} batches to {output}")
    if json:
        print_json(_as_dict(plan, diversity))
    else:
        _show(plan, diversity)


def _as_dict(plan: EpochPlan, diversity: Diversity) -> dict[str, Any]:
    return {
        "epoch": plan.epoch,
        "num_replicas": plan.num_replicas,
        "fingerprint": plan.fingerprint,
        "version": plan.version,
        "config": plan.config.to_dict(),
        **plan.stats.to_dict(),
        "left_out": plan.stats.left_out(),
        "diversity": diversity.to_dict(),
    }


def _show(plan: EpochPlan, diversity: Diversity) -> None:
    stats, config = plan.stats, plan.config
    repeat = diversity.partner_repeat_rate
    rows = [
        ("strategy", f"{config.strategy}, {config.batch_sizing}, {config.order} order"),
        ("samples", f"{stats.num_samples:,}"),
        ("batches", f"{stats.num_batches:,}"),
        ("steps per replica", f"{stats.num_steps:,}"),
        ("real tokens", f"{stats.real_tokens:,}"),
        ("padded tokens", f"{stats.padded_tokens:,}"),
        ("efficiency", percent(stats.efficiency, 2)),
        ("utilization", percent(stats.utilization, 2)),
        ("pairs that meet again next epoch", "-" if repeat is None else percent(repeat, 4)),
        ("design effect of a step (length)", f"{diversity.design_effect:.3g}"),
        ("replica balance", percent(diversity.replica_balance, 2)),
        ("distinct shapes", f"{diversity.num_shapes:,}"),
        ("fingerprint", plan.fingerprint),
    ]
    noun = "replica" if plan.num_replicas == 1 else "replicas"
    title = f"epoch {plan.epoch} for {plan.num_replicas:,} {noun}"
    print_table(title, ["", "value"], rows)
    for what, count in stats.left_out().items():
        print_line(f"{what}: {count:,}")
