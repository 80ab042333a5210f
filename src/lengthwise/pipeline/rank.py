"""A drafter rank: the same training loop as in one process, fed from the arena."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lengthwise.dflash.formats.native import save_native
from lengthwise.dflash.training.checkpoint import read_checkpoint
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.loop import TrainingLoop
from lengthwise.dflash.training.places import place_in, write_folder
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.probe import probe_drafter
from lengthwise.dflash.training.setup import load_ends_of, make_drafter, store_of, target_facts
from lengthwise.pipeline.copies import Inbox
from lengthwise.pipeline.devices import use_device
from lengthwise.pipeline.hung import ANSWER_SECONDS
from lengthwise.pipeline.messages import Evaluate, Finished, Ready, Told, Waits
from lengthwise.pipeline.network import interface_towards
from lengthwise.pipeline.source import PipelineSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.drafter import Drafter
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.target.ends import FrozenEnds
    from lengthwise.dflash.training.checkpoint import Saver
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.training.progress import Observer, Position, StepFacts
    from lengthwise.dflash.update import StepResult
    from lengthwise.pipeline.arena import Channel, Place
    from lengthwise.pipeline.wire import Wire

SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class RankTask:
    """What a drafter rank needs to begin.

    Attributes:
        config: the run's.
        data: what it trains on.
        device: its own.
        rank: which it is.
        num_ranks: how many there are.
        meeting: host and port of the store by which ranks find each other.
        num_processes: that share the CPU.
        place: where its features come from.
        checkpoint: to go on from, or None.
        attempt: how often all ranks were started again before.
    """

    config: TrainConfig
    data: TrainingData
    device: str
    rank: int
    num_ranks: int
    meeting: tuple[str, int]
    num_processes: int
    place: Place
    checkpoint: str | None
    attempt: int = 0


def train(wire: Wire, task: RankTask) -> None:
    """Run the training loop on what the coordinator delivers."""
    device = torch.device(task.device)
    use_device(device, task.num_processes)
    if task.num_ranks > 1:
        wire.send(Waits(True))  # the others' processes may take longer to begin
        _meet(task, device)
        wire.send(Waits(False))
    channel = task.place.open(wire)
    if device.type == "cuda":
        channel.pin()
    task.data.dataset.warm_up()
    plan = TrainingPlan(task.data, task.config)
    models = _load(task.config, device)
    place = (task.rank, task.num_ranks)
    timings = probe_drafter(plan, task.config, *models, task.place.shape.dtype, place)
    loop, source = _loop(wire, task, plan, *models, channel)
    if task.checkpoint is not None:
        loop.resume(read_checkpoint(task.checkpoint))
    plan.epoch(loop.position.epoch)  # made now, not while the first step's samples wait
    wire.send(Ready(timings))
    outcome = loop.run()
    source.finish()
    wire.send(Finished(outcome))
    source.wait_to_leave()
    channel.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def _meet(task: RankTask, device: torch.device) -> None:
    """Join the other ranks at the store."""
    host, port = task.meeting
    interface = interface_towards(host)
    if interface is not None:
        # By the machine's name alone, gloo may take an address that others cannot reach.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    # Longer than the coordinator's, which then finds the one that hangs, not those who wait for it.
    patience = timedelta(seconds=2 * task.config.pipeline.timeout_seconds + ANSWER_SECONDS)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=False, timeout=patience
    )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=task.rank,
        world_size=task.num_ranks,
        timeout=patience,
    )


def _load(config: TrainConfig, device: torch.device) -> tuple[Drafter, FrozenEnds]:
    target_config, _ = target_facts(config)
    ends = load_ends_of(config, device)
    return make_drafter(config, target_config, ends.num_embeddings).to(device), ends


def _loop(
    wire: Wire,
    task: RankTask,
    plan: TrainingPlan,
    drafter: Drafter,
    ends: FrozenEnds,
    channel: Channel,
) -> tuple[TrainingLoop, PipelineSource]:
    config, first = task.config, task.rank == 0
    learner = Learner(
        drafter,
        ends,
        config,
        total_steps=plan.num_steps,
        skipped_path=Path(config.output_dir) / "skipped.jsonl",
        boundaries=task.data.length_boundaries(),
    )
    inbox = Inbox(channel, drafter.device)
    source = PipelineSource(wire, task.data.dataset, inbox, learner.update.meetings)
    evaluates = config.evaluation.num_prompts > 0 and len(task.data.held_out.sample_ids) > 0
    loop = TrainingLoop(
        config,
        plan,
        learner,
        source,
        store=NotingStore(store_of(config), source) if first else None,
        evaluator=RemoteEvaluator(wire, learner, _snapshots(task)) if first and evaluates else None,
        observer=Reporter(wire, first=first),
        drafter_dir=place_in(config.shared_dir, "drafter") if first else None,
        catch_signals=False,
    )
    return loop, source


def _snapshots(task: RankTask) -> Location:
    """Where drafters to evaluate go; a target may still read what ranks before these wrote."""
    folder = place_in(task.config.shared_dir, SNAPSHOTS)
    return place_in(folder, f"attempt-{task.attempt}") if task.attempt else folder


class NotingStore:
    """Writes a checkpoint when the record of every step in it is safe.

    A resumed run makes no step again that its checkpoint has; so the coordinator must have written
    that step's record before, lest it is lost where the coordinator is killed in between.

    Args:
        store: takes the checkpoints.
        source: talks to the coordinator.
    """

    def __init__(self, store: Saver, source: PipelineSource) -> None:
        """Write where ``store`` does."""
        self._store = store
        self._source = source

    def save(
        self,
        state: dict[str, Any],
        optimizer_state: dict[str, Any],
        write_drafter: Callable[[Path], object],
    ) -> Location:
        """Wait for the coordinator, then write; see the class above."""
        self._source.wait_until_noted()
        return self._store.save(state, optimizer_state, write_drafter)


class RemoteEvaluator:
    """Has a target worker evaluate the drafter as it is now, while training goes on."""

    def __init__(self, wire: Wire, learner: Learner, folder: Location) -> None:
        """Nothing is asked for yet; snapshots go into ``folder``."""
        self._wire = wire
        self._learner = learner
        self._folder = folder

    def evaluate(
        self,
        position: Position,
        observer: Observer,  # noqa: ARG002 - the coordinator has one of its own
        *,
        compare: bool,
    ) -> None:
        """Write the drafter down and ask; the coordinator tells its observer what comes of it."""
        place = place_in(self._folder, f"step-{position.num_steps:08d}")
        write_folder(place, self._write)
        self._wire.send(Evaluate(position, str(place), compare))

    def _write(self, folder: Path) -> None:
        save_native(self._learner.drafter, folder, dtype=torch.float32)


class Reporter:
    """Tells the coordinator's observer what happens on the first rank; others are silent."""

    def __init__(self, wire: Wire, *, first: bool) -> None:
        """Say nothing unless ``first``."""
        self._wire = wire
        self._first = first

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """A step is done."""
        if self._first:
            result = replace(result, sums=result.sums.to("cpu"))
            self._wire.send(Told("stepped", (position, result, facts)))

    def evaluated(self, position: Position, evaluation: Evaluation, sums: DraftSums) -> None:
        """Nothing: a target worker evaluates, and tells the coordinator itself."""

    def saved(self, position: Position, path: Location) -> None:
        """A checkpoint is in place."""
        if self._first:
            self._wire.send(Told("saved", (position, path)))
