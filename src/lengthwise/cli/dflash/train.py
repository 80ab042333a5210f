"""``lengthwise dflash train``: a drafter from a config file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import Json, Quiet
from lengthwise.cli.output import print_json, print_line, print_note, print_table
from lengthwise.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.loop import Outcome, TrainingLoop
    from lengthwise.dflash.training.setup import Setup

ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        help="The config, a YAML file; --print-config without it prints one to start from.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="FIELD=VALUE",
        help="A field of the config, given anew: --set optimizer.learning_rate=3e-4. Repeatable.",
        show_default=False,
    ),
]
PrintConfig = Annotated[
    bool,
    typer.Option("--print-config", help="Print every field with its value and reason, and stop."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--from-scratch",
        help="Go on from the newest checkpoint in output_dir, if there is one; the other refuses "
        "to begin where there is one.",
    ),
]


def command(
    config: ConfigFile = None,
    overrides: Set = None,
    print_config: PrintConfig = False,
    resume: Resume = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a drafter on one device, from a config file.

    The target runs batches formed by length; their samples wait in a pool, from which optimiser
    steps draw at random. OUTPUT_DIR gets checkpoints, metrics.jsonl and, at the end, the drafter
    in drafter/. The first Ctrl-C ends the run after the step at hand, with a checkpoint: the
    same command goes on from there, with the same losses as if nothing had happened.
    """
    from lengthwise.dflash.training.config import read_train_config
    from lengthwise.dflash.training.describe import describe, describe_defaults

    if config is None:
        if not print_config:
            raise ConfigError(
                "name a config file; `lengthwise dflash train --print-config` prints one to "
                "start from"
            )
        sys.stdout.write(describe_defaults())
        return
    settings = read_train_config(config, overrides or ())
    if print_config:
        sys.stdout.write(describe(settings))
        return
    outcome, summary = _train(settings, resume=resume, quiet=quiet)
    if json:
        print_json(summary)
    else:
        _show(summary)
    if outcome.interrupted:
        print_note("interrupted; the same command goes on from the checkpoint")
        raise typer.Exit(130)


def _train(config: TrainConfig, *, resume: bool, quiet: bool) -> tuple[Outcome, dict[str, Any]]:
    from lengthwise.cli.dflash.train_view import TrainView
    from lengthwise.dflash.training.log import RunLog
    from lengthwise.dflash.training.setup import assemble, set_up, store_of

    store = store_of(config)
    if not resume and store.paths():
        raise CheckpointError(
            f"{store.directory} holds checkpoints of an earlier run; leave out --from-scratch to "
            f"go on from them, or choose another output_dir"
        )
    checkpoint = store.latest() if resume else None
    if not quiet:
        print_note("loading target and data")
    setup = set_up(config)
    log = RunLog(config)
    view = TrainView(setup, log, quiet=quiet)
    try:
        loop = assemble(setup, store, view)
        if not quiet:
            print_table("training", ["", "value"], _facts(setup))
        if checkpoint is not None:
            _resume(loop, checkpoint, quiet=quiet)
        with view:
            outcome = loop.run()
    finally:
        log.close()
    return outcome, _summary(setup, outcome, view)


def _resume(loop: TrainingLoop, checkpoint: Any, *, quiet: bool) -> None:
    changed = loop.resume(checkpoint)
    if not quiet:
        print_note(f"going on from {checkpoint.path}")
        for line in changed:
            print_note(f"changed: {line}")


def _facts(setup: Setup) -> list[tuple[str, str]]:
    data, plan, config = setup.data, setup.plan, setup.config
    epoch = plan.epoch(0)
    efficiency = data.num_tokens / int(epoch.mix.arrivals.padded_tokens.sum())
    sizes = setup.drafter.config
    num_weights = sum(weight.numel() for weight in setup.drafter.parameters())
    shape = f"{sizes.num_hidden_layers} layers, blocks of {sizes.block_size}"
    rows = [
        ("device", str(setup.device)),
        ("target", f"{config.target.model}, {setup.target.num_layers} layers"),
        ("taps", ", ".join(map(str, sizes.target_layer_ids))),
        ("drafter", f"{shape}, {num_weights:,} weights"),
        ("samples", f"{len(data.sample_ids):,}, {data.num_tokens:,} tokens"),
        ("held out", f"{len(data.held_out.sample_ids):,}"),
        ("target's batches an epoch", f"{epoch.num_arrivals:,}, efficiency {efficiency:.2%}"),
        ("optimiser steps", f"{plan.num_steps:,}, {plan.steps_per_epoch:,} an epoch"),
        ("samples that wait, at most", f"{setup.pool_bytes / 2**20:,.0f} MiB"),
    ]
    rows += [(f"left out: {reason}", f"{count:,}") for reason, count in data.left_out.items()]
    return rows


def _summary(setup: Setup, outcome: Outcome, view: Any) -> dict[str, Any]:
    return {
        "num_steps": outcome.position.num_steps,
        "total_steps": setup.plan.num_steps,
        "interrupted": outcome.interrupted,
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "drafter": None if outcome.interrupted else str(setup.drafter_dir),
        "left_out": setup.data.left_out,
        "seconds": view.seconds,
        "num_skipped": view.num_skipped,
        **{name: value for name, value in view.log.last.items() if name != "step"},
        **{name: value for name, value in view.log.last_evaluation.items() if name != "step"},
    }


def _show(summary: dict[str, Any]) -> None:
    shown = {
        "loss": ".4f",
        "accuracy": ".3f",
        "eval_loss": ".4f",
        "eval_accuracy": ".3f",
        "eval_tokens_per_verify": ".2f",
        "eval_speedup": ".2f",
        "eval_mismatches": ",",
    }
    rows = [("optimiser steps", f"{summary['num_steps']:,} of {summary['total_steps']:,}")]
    rows += [
        (name.replace("eval_", "held-out ").replace("_", " "), format(summary[name], form))
        for name, form in shown.items()
        if summary.get(name) is not None
    ]
    if summary["num_skipped"]:
        rows.append(("steps skipped, not finite", f"{summary['num_skipped']:,}"))
    print_table("trained", ["", "value"], rows)
    if summary["drafter"]:
        print_line(f"drafter: {summary['drafter']}")
    elif summary["checkpoint"]:
        print_line(f"checkpoint: {summary['checkpoint']}")
