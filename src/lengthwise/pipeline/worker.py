"""A target worker: runs the plan's batches and writes features into the arena."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.dflash.formats.load import load_native
from lengthwise.dflash.target.samples import samples_of
from lengthwise.dflash.training.held_out import HeldOutEvaluator
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.setup import load_target_of
from lengthwise.errors import DataError
from lengthwise.pipeline.arena import Arena
from lengthwise.pipeline.child import use_device
from lengthwise.pipeline.messages import Arrived, Evaluate, Evaluated, Leave, Ready, RunBatch

if TYPE_CHECKING:
    from lengthwise.dflash.batch import Sample
    from lengthwise.dflash.dataset import PreparedDataset, PreparedSample
    from lengthwise.dflash.target.model import Target
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.pipeline.arena import ArenaShape
    from lengthwise.pipeline.wire import Wire


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a target worker needs to begin.

    Attributes:
        config: the run's.
        data: what the run trains on, and what is held out.
        device: its own.
        num_processes: that share the machine.
        layer_ids: the taps.
        arena: the shape of the arena.
        arena_name: to attach to it.
    """

    config: TrainConfig
    data: TrainingData
    device: str
    num_processes: int
    layer_ids: tuple[int, ...]
    arena: ArenaShape
    arena_name: str


def work(wire: Wire, task: WorkerTask) -> None:
    """Run batches until told to leave.

    A thread receives messages and reads their samples from the files while the target runs the
    batch before.
    """
    device = torch.device(task.device)
    use_device(device, task.num_processes)
    target = load_target_of(task.config, device)
    arena = Arena(task.arena, task.arena_name)
    if device.type == "cuda":
        arena.pin()
    worker = _Worker(wire, task, target, arena)
    wire.send(Ready())
    jobs: queue.Queue[Any] = queue.Queue()
    reading = (wire, task.data.dataset, jobs)
    threading.Thread(target=_receive, args=reading, daemon=True).start()
    worker.serve(jobs)
    arena.close()


def _receive(wire: Wire, dataset: PreparedDataset, jobs: queue.Queue[Any]) -> None:
    """Put every message into the queue, batches with their rows; an error as itself."""
    try:
        while True:
            message = wire.receive()
            rows = None
            if isinstance(message, RunBatch):
                rows = [dataset[sample] for sample in message.sample_ids]
            jobs.put((message, rows))
            if isinstance(message, Leave):
                return
    except BaseException as error:  # noqa: BLE001 - raised by whoever takes it
        jobs.put((error, None))


class _Worker:
    def __init__(self, wire: Wire, task: WorkerTask, target: Target, arena: Arena) -> None:
        self._wire = wire
        self._task = task
        self._target = target
        self._arena = arena

    def serve(self, jobs: queue.Queue[Any]) -> None:
        """Do one job after the other."""
        while True:
            began = time.perf_counter()
            message, rows = jobs.get()
            waited = time.perf_counter() - began
            if isinstance(message, BaseException):
                raise message
            if isinstance(message, Leave):
                return
            if isinstance(message, Evaluate):
                self._wire.send(self._evaluate(message))
            else:
                self._wire.send(self._run(message, rows, waited))

    def _run(self, batch: RunBatch, rows: list[PreparedSample], waited: float) -> Arrived:
        """Run a batch; samples that are bad are told, and the others written."""
        began = time.perf_counter()
        bad: dict[int, str] = {}
        wanted = {part.sample_id: part for part in batch.parts}
        for sample in self._samples(batch, rows, bad):
            part = wanted.get(sample.sample_id)
            if part is None:
                continue
            try:
                self._arena.write(part, sample.features)
            except DataError as error:
                bad[part.sample_id] = str(error)
        if self._target.device.type == "cuda":
            torch.cuda.synchronize()  # the copies must be there before anyone is told
        lengths = [len(row["input_ids"]) for row in rows]
        return Arrived(
            batch.epoch,
            batch.arrival,
            {sample: why for sample, why in bad.items() if sample in wanted},
            real_tokens=sum(lengths),
            padded_tokens=len(lengths) * max(lengths),
            busy_seconds=time.perf_counter() - began,
            wait_seconds=waited,
        )

    def _samples(
        self, batch: RunBatch, rows: list[PreparedSample], bad: dict[int, str]
    ) -> list[Sample]:
        """All samples of a batch together; one by one where that finds a bad one among them."""
        try:
            return self._together(rows, list(batch.sample_ids))
        except DataError:
            found = []
            for row, sample in zip(rows, batch.sample_ids, strict=True):
                try:
                    found += self._together([row], [sample])
                except DataError as error:
                    bad[sample] = str(error)
            return found

    def _together(self, rows: list[PreparedSample], sample_ids: list[int]) -> list[Sample]:
        return samples_of(
            self._target,
            [row["input_ids"] for row in rows],
            [row["loss_mask"] for row in rows],
            sample_ids,
            self._task.layer_ids,
        )

    def _evaluate(self, request: Evaluate) -> Evaluated:
        """Decode held-out prompts with a drafter from a folder."""
        drafter = load_native(request.folder).to(self._target.device)
        config = self._task.config
        learner = Learner(drafter, self._target.ends, config, total_steps=1)
        held_out = self._task.data.held_out
        evaluator = HeldOutEvaluator(self._target, learner, held_out, config)
        found = evaluator.decode(compare=request.compare)
        return Evaluated(request, found, evaluator.measure())
