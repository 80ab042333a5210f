"""A target worker: runs the plan's batches and writes features into the channel."""

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
from lengthwise.dflash.training.places import on_disk
from lengthwise.dflash.training.probe import batch_shapes, probe_target
from lengthwise.dflash.training.setup import load_target_of
from lengthwise.errors import DataError
from lengthwise.pipeline.child import leave_orphaned
from lengthwise.pipeline.copies import Outbox
from lengthwise.pipeline.devices import use_device
from lengthwise.pipeline.messages import Arrived, Evaluate, Evaluated, Leave, Part, Ready, RunBatch
from lengthwise.pipeline.wire import HangUpError

if TYPE_CHECKING:
    from lengthwise.calibrate import Shape
    from lengthwise.dflash.batch import Sample
    from lengthwise.dflash.dataset import PreparedDataset, PreparedSample
    from lengthwise.dflash.target.model import Target
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.pipeline.arena import Channel, Place
    from lengthwise.pipeline.setup import PipelineSetup
    from lengthwise.pipeline.wire import Wire


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a target worker needs to begin.

    Attributes:
        config: the run's.
        data: what the run trains on, and what is held out.
        device: its own.
        num_processes: that share the CPU.
        layer_ids: the taps.
        place: where its features go.
        shapes: of the plan's batches, to time before the run; empty for none.
    """

    config: TrainConfig
    data: TrainingData
    device: str
    num_processes: int
    layer_ids: tuple[int, ...]
    place: Place
    shapes: tuple[Shape, ...] = ()


def work(wire: Wire, task: WorkerTask) -> None:
    """Run batches until told to leave.

    A thread receives messages and reads their samples from the files while the target runs the
    batch before.
    """
    device = torch.device(task.device)
    use_device(device, task.num_processes)
    task.data.dataset.warm_up()
    target = load_target_of(task.config, device)
    channel = task.place.open(wire)
    if device.type == "cuda":
        channel.pin()
    worker = _Worker(wire, task, target, channel)
    rounds = task.config.pipeline.probe_rounds
    wire.send(Ready(probe_target(task.shapes, worker.rehearse, device, rounds)))
    jobs: queue.Queue[Any] = queue.Queue()
    reading = (wire, task.data.dataset, jobs)
    threading.Thread(target=_receive, args=reading, name="receive", daemon=True).start()
    worker.serve(jobs)
    channel.close()


def shapes_to_time(setup: PipelineSetup) -> tuple[Shape, ...]:
    """Shapes of the plan's batches that a worker runs before the run; none where not wanted."""
    if not setup.config.pipeline.probe_rounds:
        return ()
    return tuple(batch_shapes(setup.plan.epoch(0).mix.arrivals))


def _receive(wire: Wire, dataset: PreparedDataset, jobs: queue.Queue[Any]) -> None:
    """Put every message into the queue, batches with their rows; an error as itself."""
    try:
        while True:
            message = wire.receive()
            heard = time.perf_counter()
            rows = None
            if isinstance(message, RunBatch):
                rows = [_read(dataset, sample) for sample in message.sample_ids]
            jobs.put((message, rows, heard))
            if isinstance(message, Leave):
                return
    except HangUpError:
        leave_orphaned()
    except BaseException as error:  # noqa: BLE001 - raised by whoever takes it
        jobs.put((error, None, 0.0))


def _read(dataset: PreparedDataset, sample: int) -> PreparedSample | DataError:
    """A sample's row, or what is wrong with it."""
    try:
        return dataset[sample]
    except DataError as error:
        return error


class _Worker:
    def __init__(self, wire: Wire, task: WorkerTask, target: Target, channel: Channel) -> None:
        self._wire = wire
        self._task = task
        self._target = target
        self._channel = channel
        self._outbox = Outbox(wire, target.device)

    def serve(self, jobs: queue.Queue[Any]) -> None:
        """Do one job after the other."""
        while True:
            began = time.perf_counter()
            message, rows, heard = jobs.get()
            now = time.perf_counter()
            if isinstance(message, BaseException):
                raise message
            if isinstance(message, Leave):
                return
            if isinstance(message, Evaluate):
                self._wire.send(self._evaluate(message))
            else:
                self._run(message, rows, now - began, now - max(began, heard))

    def rehearse(self, rows: list[list[int]]) -> None:
        """All that is done with a batch; into pages that nobody has yet."""
        masks = [[True] * len(row) for row in rows]
        layers = self._task.layer_ids
        for one in samples_of(self._target, rows, masks, range(len(rows)), layers):
            pages = tuple(range(-(-len(one) // self._task.place.shape.page_tokens)))
            self._channel.write(Part(one.sample_id, len(one), pages), one.features)

    def _run(
        self,
        batch: RunBatch,
        rows: list[PreparedSample | DataError],
        waited: float,
        reading: float = 0.0,
    ) -> None:
        """Run a batch; samples that are bad are told, and the others written.

        Args:
            batch: to run.
            rows: of its samples.
            waited: seconds before it, without work.
            reading: of them, in which the batch was known and its rows were being read.
        """
        self._outbox.begin()
        bad: dict[int, str] = {}
        good: dict[int, PreparedSample] = {}
        for sample, row in zip(batch.sample_ids, rows, strict=True):
            if isinstance(row, DataError):
                bad[sample] = f"sample {sample}: {row}"
            else:
                good[sample] = row
        wanted = {part.sample_id: part for part in batch.parts}
        samples = [one for one in self._samples(good, bad) if one.sample_id in wanted]
        with self._outbox.copying():
            for one in samples:
                try:
                    self._channel.write(wanted[one.sample_id], one.features)
                except DataError as error:
                    bad[one.sample_id] = str(error)
        lengths = [len(row["input_ids"]) for row in good.values()]
        message = Arrived(
            batch.epoch,
            batch.arrival,
            {sample: why for sample, why in bad.items() if sample in wanted},
            real_tokens=sum(lengths),
            padded_tokens=len(lengths) * max(lengths, default=0),
            busy_seconds=0.0,
            wait_seconds=waited,
            input_seconds=reading,
            longest=max(lengths, default=0),
        )
        self._outbox.send(message, [one.features for one in samples])

    def _samples(self, rows: dict[int, PreparedSample], bad: dict[int, str]) -> list[Sample]:
        """All samples of a batch together; where that finds a bad one, those that are good.

        They still run as one batch, if another one: a bad sample is left out of it.
        """
        while rows:
            try:
                return self._together(rows)
            except DataError:
                alone = {sample: self._problem(sample, row) for sample, row in rows.items()}
                found = {sample: why for sample, why in alone.items() if why is not None}
                if not found:
                    raise
                bad.update(found)
                rows = {sample: row for sample, row in rows.items() if sample not in found}
        return []

    def _problem(self, sample: int, row: PreparedSample) -> str | None:
        """What is wrong with a sample, run alone."""
        try:
            self._together({sample: row})
        except DataError as error:
            return str(error)
        return None

    def _together(self, rows: dict[int, PreparedSample]) -> list[Sample]:
        return samples_of(
            self._target,
            [row["input_ids"] for row in rows.values()],
            [row["loss_mask"] for row in rows.values()],
            list(rows),
            self._task.layer_ids,
        )

    def _evaluate(self, request: Evaluate) -> Evaluated:
        """Decode held-out prompts with a drafter from a folder."""
        with on_disk(request.folder) as folder:
            drafter = load_native(folder).to(self._target.device)
        config = self._task.config
        learner = Learner(drafter, self._target.ends, config, total_steps=1)
        held_out = self._task.data.held_out
        evaluator = HeldOutEvaluator(self._target, learner, held_out, config)
        found = evaluator.decode(compare=request.compare)
        return Evaluated(request, found, evaluator.measure().to("cpu"))
