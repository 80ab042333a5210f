"""``lengthwise dflash train`` with devices for targets and devices for the drafter."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from lengthwise.cli.dflash.train import efficiency_of, summary_of
from lengthwise.cli.output import print_note
from lengthwise.core.wording import memory, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.pipeline_section import PipelineSection
    from lengthwise.pipeline.setup import PipelineSetup


def train_pipeline(
    config: TrainConfig, checkpoint: Checkpoint | None, *, quiet: bool
) -> dict[str, Any]:
    """Run a pipeline to its end, and show it.

    Args:
        config: names the devices.
        checkpoint: to go on from.
        quiet: show warnings only.

    Returns:
        The summary, as for one process.
    """
    from lengthwise.cli.dflash.pipeline_view import PipelineView
    from lengthwise.cli.dflash.train_view import show_facts
    from lengthwise.dflash.training.log import RunLog
    from lengthwise.dflash.training.setup import count_weights
    from lengthwise.pipeline.run import run_pipeline
    from lengthwise.pipeline.setup import set_up_pipeline
    from lengthwise.pipeline.telemetry import RunFacts, Telemetry

    setup = set_up_pipeline(config)
    total, num_weights = setup.plan.num_steps, count_weights(setup.drafter)
    num_done = 0 if checkpoint is None else checkpoint.num_steps
    if not quiet:
        show_facts(_facts(setup, num_weights))
    if checkpoint is not None and not quiet:
        done = f"{num_done:,} of {total:,} steps are done"
        print_note(f"going on from {checkpoint.path}: {done}")
    telemetry = Telemetry(RunFacts.of(setup, num_done))
    log = RunLog(config, setup.data.length_boundaries())
    view = PipelineView(total, log, telemetry, num_done=num_done, quiet=quiet)
    try:
        with view:
            outcome = run_pipeline(setup, checkpoint, view)
    finally:
        log.close()
    return summary_of(config, setup.data, setup.plan, setup.drafter, num_weights, outcome, view)


def _facts(setup: PipelineSetup, num_weights: int) -> list[tuple[str, str]]:
    config, data, plan, sizes = setup.config, setup.data, setup.plan, setup.drafter
    section, num_arrivals = config.pipeline, plan.epoch(0).num_arrivals
    taps = ", ".join(map(str, sizes.target_layer_ids))
    targets, drafters = _devices(section, section.targets), _devices(section, section.drafters)
    drafter = f"{sizes.num_hidden_layers} layers, {num_weights:,} weights"
    samples = f"{data.sample_ids.size:,} samples, {data.num_tokens:,} tokens"
    real = f"{percent(efficiency_of(plan))} of their tokens are real"
    anchors = f"{config.step.anchors_per_step:,} anchors each"
    return [
        ("targets", f"{config.target.model} on {targets}; taps {taps}"),
        ("drafter", f"{drafter}, blocks of {sizes.block_size}, on {drafters}"),
        ("data", f"{samples}; {data.held_out.sample_ids.size:,} samples held out"),
        *(("left out", f"{count:,}: {reason}") for reason, count in data.left_out.items()),
        ("batches", f"{num_arrivals:,} an epoch, {real}"),
        ("steps", f"{plan.num_steps:,}, {plan.steps_per_epoch:,} an epoch, {anchors}"),
        *_memory_facts(setup),
    ]


def _devices(section: PipelineSection, names: tuple[str, ...]) -> str:
    if section.engine == "local":
        return ", ".join(names)
    return ", ".join(f"{count} x {kind}" for kind, count in Counter(names).items()) + " of Ray"


def _memory_facts(setup: PipelineSetup) -> Iterator[tuple[str, str]]:
    """What every device is planned to hold; what layers need to compute comes on top."""
    from lengthwise.pipeline.memory import plan_memory

    for planned in plan_memory(setup):
        parts = [
            f"{name} {'unknown' if part is None else memory(part)}"
            for name, part in planned.parts.items()
        ]
        yield "memory", f"{planned.place}: {', '.join(parts)}"
