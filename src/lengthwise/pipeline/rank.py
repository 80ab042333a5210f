"""A drafter rank: the same training loop as in one process, fed from the arena."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.formats.native import save_native
from lengthwise.dflash.training.checkpoint import read_checkpoint
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.loop import TrainingLoop
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import load_target_of, make_drafter, store_of
from lengthwise.pipeline.arena import Arena
from lengthwise.pipeline.child import use_device
from lengthwise.pipeline.messages import (
    Copied,
    Deliver,
    Evaluate,
    Finished,
    Learnt,
    Leave,
    Ready,
    Stop,
    Told,
)

if TYPE_CHECKING:
    from lengthwise.dflash.dataset import PreparedDataset
    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.dflash.training.loop import Observer, Position, StepFacts
    from lengthwise.dflash.training.plan import Epoch
    from lengthwise.dflash.update import StepResult
    from lengthwise.pipeline.arena import ArenaShape
    from lengthwise.pipeline.messages import Part
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
        port: on this machine, where ranks meet.
        num_processes: that share the machine.
        arena: the shape of the arena.
        arena_name: to attach to it.
        checkpoint: to go on from, or None.
    """

    config: TrainConfig
    data: TrainingData
    device: str
    rank: int
    num_ranks: int
    port: int
    num_processes: int
    arena: ArenaShape
    arena_name: str
    checkpoint: str | None


def train(wire: Wire, task: RankTask) -> None:
    """Run the training loop on what the coordinator delivers."""
    device = torch.device(task.device)
    use_device(device, task.num_processes)
    _meet(task, device)
    config = task.config
    arena = Arena(task.arena, task.arena_name)
    if device.type == "cuda":
        arena.pin()
    loop, source = _loop(wire, task, device, arena)
    if task.checkpoint is not None:
        loop.resume(read_checkpoint(task.checkpoint))
    wire.send(Ready())
    outcome = loop.run()
    source.finish()
    wire.send(Finished(outcome))
    source.wait_to_leave(config.pipeline.timeout_seconds)
    arena.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def _meet(task: RankTask, device: torch.device) -> None:
    if task.num_ranks == 1:
        return
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"tcp://127.0.0.1:{task.port}",
        rank=task.rank,
        world_size=task.num_ranks,
        timeout=timedelta(seconds=task.config.pipeline.timeout_seconds),
    )


def _loop(
    wire: Wire, task: RankTask, device: torch.device, arena: Arena
) -> tuple[TrainingLoop, PipelineSource]:
    config, first = task.config, task.rank == 0
    plan = TrainingPlan(task.data, config)
    # The target itself is not needed here, only its two ends; it is let go again at once.
    target = load_target_of(config, torch.device("cpu"))
    ends = target.ends.copy_to(device)
    drafter = make_drafter(config, target.config, ends.num_embeddings).to(device)
    del target
    learner = Learner(
        drafter,
        ends,
        config,
        total_steps=plan.num_steps,
        skipped_path=Path(config.output_dir) / "skipped.jsonl",
        boundaries=task.data.length_boundaries(),
    )
    source = PipelineSource(wire, task.data.dataset, arena)
    evaluates = config.evaluation.num_prompts > 0 and len(task.data.held_out.sample_ids) > 0
    loop = TrainingLoop(
        config,
        plan,
        learner,
        source,
        store=store_of(config) if first else None,
        evaluator=RemoteEvaluator(wire, learner, config) if first and evaluates else None,
        observer=Reporter(wire, first=first),
        drafter_dir=Path(config.output_dir) / "drafter" if first else None,
        catch_signals=False,
    )
    return loop, source


class PipelineSource:
    """Hands out the samples that the coordinator delivers.

    A thread receives, and copies features out of the arena as soon as they are announced, so that
    their pages are free again before they are learnt from.

    Args:
        wire: to the coordinator.
        dataset: for tokens and masks; they do not travel.
        arena: for features.
    """

    def __init__(self, wire: Wire, dataset: PreparedDataset, arena: Arena) -> None:
        """Begin to receive."""
        self._wire = wire
        self._dataset = dataset
        self._arena = arena
        self._ready: queue.Queue[Any] = queue.Queue()
        self._left = threading.Event()
        self._expected: tuple[int, int] | None = None
        self._mark: float | None = None
        self._waited = 0.0
        threading.Thread(target=self._receive, daemon=True).start()

    def begin(self, epoch: Epoch, num_done: int) -> None:
        """Expect the steps of an epoch from ``num_done`` on."""
        self._expected = (epoch.number, num_done)

    def take(self, step: int) -> list[Sample] | None:
        """This rank's samples of a step; None where the run is to end before it."""
        self.finish()
        began = time.perf_counter()
        message, samples = self._ready.get()
        self._waited = time.perf_counter() - began
        if isinstance(message, BaseException):
            raise message
        if isinstance(message, Stop):
            return None
        assert self._expected is not None
        assert (message.epoch, message.step) == (self._expected[0], step), "steps come in order"
        self._mark = time.perf_counter()
        return samples  # type: ignore[no-any-return]

    def finish(self) -> None:
        """The step that was taken last has been learnt from."""
        if self._mark is not None:
            self._wire.send(Learnt(self._waited, time.perf_counter() - self._mark))
            self._mark = None

    def wait_to_leave(self, seconds: float) -> None:
        """Stay until the coordinator has heard all there is to hear."""
        self._left.wait(seconds)

    def _receive(self) -> None:
        try:
            while True:
                message = self._wire.receive()
                if isinstance(message, Leave):
                    self._left.set()
                    return
                samples = None
                if isinstance(message, Deliver):
                    samples = [self._sample(part) for part in message.parts]
                    self._wire.send(Copied(message.epoch, message.step))
                self._ready.put((message, samples))
        except BaseException as error:  # noqa: BLE001 - raised by whoever takes it
            self._ready.put((error, None))

    def _sample(self, part: Part) -> Sample:
        row = self._dataset[part.sample_id]
        return Sample(part.sample_id, row["input_ids"], row["loss_mask"], self._arena.read(part))


class RemoteEvaluator:
    """Has a target worker evaluate the drafter as it is now, while training goes on."""

    def __init__(self, wire: Wire, learner: Learner, config: TrainConfig) -> None:
        """Nothing is asked for yet."""
        self._wire = wire
        self._learner = learner
        self._folder = Path(config.output_dir) / SNAPSHOTS

    def evaluate(
        self,
        position: Position,
        observer: Observer,  # noqa: ARG002 - the coordinator has one of its own
        *,
        compare: bool,
    ) -> None:
        """Write the drafter down and ask; the coordinator tells its observer what comes of it."""
        folder = self._folder / f"step-{position.num_steps:08d}"
        save_native(self._learner.drafter, folder, dtype=torch.float32)
        self._wire.send(Evaluate(position, str(folder), compare))


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

    def saved(self, position: Position, path: Path) -> None:
        """A checkpoint is in place."""
        if self._first:
            self._wire.send(Told("saved", (position, path)))
