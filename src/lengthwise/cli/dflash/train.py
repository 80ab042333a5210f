"""``lengthwise dflash train``: a drafter from a config file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import Json, Quiet
from lengthwise.cli.output import print_json, print_line, print_note
from lengthwise.core.wording import memory, percent
from lengthwise.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from lengthwise.cli.dflash.train_view import TrainView
    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.dflash.training.loop import TrainingLoop
    from lengthwise.dflash.training.plan import TrainingPlan
    from lengthwise.dflash.training.progress import Outcome
    from lengthwise.dflash.training.setup import Setup

FIGURES = ("loss", "accuracy", "streak", "tokens_per_second")
"""What --json says of the last step; metrics.jsonl has everything of every step."""
EVAL_FIGURES = (
    "eval_tokens_per_verify",
    "eval_num_accepted",
    "eval_standard_error",
    "eval_streak",
    "eval_accuracy",
    "eval_loss",
    "eval_speedup",
    "eval_mismatches",
    "eval_num_prompts",
)
"""The same of the last evaluation."""

ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
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
        help="A field of the config, given anew: --set step.rows=padded. Repeatable.",
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
    """Train a drafter, from a config file.

    Target and drafter share one device, or pipeline.target_devices and pipeline.drafter_devices
    name several of each, which work at the same time.

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
    summary = _train(settings, resume=resume, quiet=quiet)
    if json:
        print_json(summary)
    else:
        _show(summary)
    if summary["interrupted"]:
        raise typer.Exit(130)


def _train(config: TrainConfig, *, resume: bool, quiet: bool) -> dict[str, Any]:
    from lengthwise.cli.dflash.train_view import TrainView, show_facts
    from lengthwise.dflash.training.log import RunLog
    from lengthwise.dflash.training.setup import assemble, set_up, store_of

    store = store_of(config)
    if not resume and store.paths():
        raise CheckpointError(
            f"{store.place} holds checkpoints of an earlier run; leave out --from-scratch to "
            f"go on from them, or choose another output_dir"
        )
    checkpoint = store.latest() if resume else None
    if config.pipeline.targets:
        from lengthwise.cli.dflash.train_pipeline import train_pipeline

        return train_pipeline(config, checkpoint, quiet=quiet)
    if not quiet:
        print_note("loading target and data")
    setup = set_up(config)
    if not quiet:
        show_facts(_facts(setup))
    log = RunLog(config, setup.data.length_boundaries())
    view = TrainView(setup.plan.num_steps, log, quiet=quiet)
    num_done = 0 if checkpoint is None else checkpoint.num_steps
    try:
        _expect(setup, num_done, view)
        loop = assemble(setup, store, view)
        if checkpoint is not None:
            _resume(loop, checkpoint, setup.plan.num_steps, quiet=quiet)
        with view:
            outcome = loop.run()
    finally:
        log.close()
    sizes = setup.drafter.config
    return summary_of(config, setup.data, setup.plan, sizes, _num_weights(setup), outcome, view)


def _expect(setup: Setup, num_done: int, view: TrainView) -> None:
    """Time a few shapes and say what the run can expect, if that can be told."""
    from lengthwise.dflash.training.expect import expect_alone
    from lengthwise.dflash.training.probe import probe_setup

    found = expect_alone(setup.plan, num_done, *probe_setup(setup))
    if found is not None:
        found.write(setup.config.output_dir)
        view.expected(found)


def _resume(loop: TrainingLoop, checkpoint: Checkpoint, total: int, *, quiet: bool) -> None:
    changed = loop.resume(checkpoint)
    if quiet:
        return
    done = f"{checkpoint.num_steps:,} of {total:,} steps are done"
    print_note(f"going on from {checkpoint.path}: {done}")
    for line in changed:
        print_note(f"changed: {line}")


def _facts(setup: Setup) -> list[tuple[str, str]]:
    config, data, plan, sizes = setup.config, setup.data, setup.plan, setup.drafter.config
    taps = ", ".join(map(str, sizes.target_layer_ids))
    dtype = str(setup.target.dtype).removeprefix("torch.")
    num_held_out, num_arrivals = data.held_out.sample_ids.size, plan.epoch(0).num_arrivals
    target = f"{setup.target.num_layers} layers, {dtype}, on {setup.device}; taps {taps}"
    drafter = f"{sizes.num_hidden_layers} layers, {_num_weights(setup):,} weights"
    samples = f"{data.sample_ids.size:,} samples, {data.num_tokens:,} tokens"
    batches = f"{num_arrivals:,} an epoch, {percent(efficiency_of(plan))} of their tokens are real"
    anchors = f"{config.step.anchors_per_step:,} anchors each"
    return [
        ("target", f"{config.target.model}: {target}"),
        ("drafter", f"{drafter}, blocks of {sizes.block_size}"),
        ("data", f"{samples}; {num_held_out:,} samples held out"),
        *(("left out", f"{count:,}: {reason}") for reason, count in data.left_out.items()),
        ("batches", batches),
        ("steps", f"{plan.num_steps:,}, {plan.steps_per_epoch:,} an epoch, {anchors}"),
        ("memory", f"{memory(setup.pool_bytes)} at most for samples that wait for their step"),
    ]


def _num_weights(setup: Setup) -> int:
    return sum(weight.numel() for weight in setup.drafter.parameters())


def efficiency_of(plan: TrainingPlan) -> float:
    """Of the target's batches in the first epoch."""
    return plan.data.num_tokens / int(plan.epoch(0).mix.arrivals.padded_tokens.sum())


def summary_of(
    config: TrainConfig,
    data: TrainingData,
    plan: TrainingPlan,
    sizes: DrafterConfig,
    num_weights: int,
    outcome: Outcome,
    view: TrainView,
) -> dict[str, Any]:
    """What --json prints; a figure that nothing was measured for in this process is null."""
    from lengthwise.dflash.training.places import place_in

    drafter = None if outcome.interrupted else str(place_in(config.shared_dir, "drafter"))
    return {
        "num_steps": outcome.position.num_steps,
        "total_steps": plan.num_steps,
        "interrupted": outcome.interrupted,
        "output_dir": config.output_dir,
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "drafter": drafter,
        "num_samples": int(data.sample_ids.size),
        "num_tokens": data.num_tokens,
        "num_held_out": int(data.held_out.sample_ids.size),
        "left_out": data.left_out,
        "num_parameters": num_weights,
        "target_layer_ids": list(sizes.target_layer_ids),
        "efficiency": efficiency_of(plan),
        "seconds": view.seconds,
        "num_skipped": view.num_skipped,
        **{name: view.log.last.get(name) for name in FIGURES},
        **{name: view.log.last_evaluation.get(name) for name in EVAL_FIGURES},
    }


def _show(summary: dict[str, Any]) -> None:
    from lengthwise.cli.dflash.train_view import show_summary

    show_summary(summary)
    if summary["drafter"]:
        print_line(f"drafter: {summary['drafter']}")
    elif summary["checkpoint"]:
        print_line(f"checkpoint: {summary['checkpoint']}; the same command goes on from there")
    else:
        print_line("no step was done, so there is nothing to go on from")
