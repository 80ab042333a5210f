"""Training through a pipeline, from a config to an outcome."""

from __future__ import annotations

import signal
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.resume import check_same_run
from lengthwise.dflash.training.setup import choose_device, drafter_config, load_data, target_facts
from lengthwise.pipeline.arena import Arena, ArenaShape
from lengthwise.pipeline.children import end_all, start
from lengthwise.pipeline.coordinator import Coordinator
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.pages import PageAllocator, pages_needed
from lengthwise.pipeline.rank import RankTask, train
from lengthwise.pipeline.worker import WorkerTask, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.dflash.training.loop import Outcome
    from lengthwise.pipeline.children import Child
    from lengthwise.pipeline.coordinator import PipelineObserver


@dataclass(frozen=True, slots=True, eq=False)
class PipelineSetup:
    """What a pipeline consists of before it runs; nothing heavy has been loaded.

    Attributes:
        config: the run's.
        data: what is trained on and held out.
        plan: the epochs.
        drafter: its sizes.
        arena: the memory between target and drafter.
    """

    config: TrainConfig
    data: TrainingData
    plan: TrainingPlan
    drafter: DrafterConfig
    arena: ArenaShape


def set_up_pipeline(config: TrainConfig) -> PipelineSetup:
    """Check devices, data and target's config, and plan the memory.

    Raises:
        ConfigError: a device that is not there, or a value that does not fit the target.
        DataError: data that cannot be trained on.
        ModelError: no such target.
    """
    for device in (*config.pipeline.target_devices, *config.pipeline.drafter_devices):
        choose_device(device)
    data = load_data(config)
    plan = TrainingPlan(data, config)
    target_config, dtype = target_facts(config)
    drafter = drafter_config(config, target_config)
    section = config.pipeline
    num_pages = pages_needed(
        plan.epoch(0).mix, data.lengths, section.page_tokens, section.prefetch_batches
    )
    # Later epochs need about as many: their pools are as large, their batches of other samples.
    room = -(-num_pages * 5 // 4)
    shape = ArenaShape(room, section.page_tokens, drafter.feature_size, dtype)
    return PipelineSetup(config, data, plan, drafter, shape)


def run_pipeline(
    setup: PipelineSetup, checkpoint: Checkpoint | None, observer: PipelineObserver
) -> Outcome:
    """Start all processes, run to the end or to a signal, end all processes.

    Args:
        setup: what to run.
        checkpoint: to go on from.
        observer: is told what happens.

    Raises:
        CheckpointError: the checkpoint belongs to another run.
        TrainingError: a process failed; see :meth:`Coordinator.run`.
    """
    num_done = 0
    if checkpoint is not None:
        check_same_run(checkpoint, setup.config, setup.plan.fingerprint)
        num_done = checkpoint.num_steps
    arena = Arena(setup.arena)
    children: list[Child] = []
    at_once = True
    try:
        with _signals() as stop_wanted:
            workers = _start_workers(setup, arena, children)
            ranks = _start_ranks(setup, arena, checkpoint, children)
            coordinator = _coordinator(setup, workers, ranks, observer, num_done)
            outcome = coordinator.run(stop_wanted)
        at_once = False
        return outcome
    finally:
        end_all(children, at_once=at_once)
        arena.close()


def _coordinator(
    setup: PipelineSetup,
    workers: list[Child],
    ranks: list[Child],
    observer: PipelineObserver,
    num_done: int,
) -> Coordinator:
    allocator = PageAllocator(setup.arena.num_pages, setup.arena.page_tokens)
    dispatcher = Dispatcher(
        setup.plan,
        setup.data.dataset.lengths,
        allocator,
        num_workers=len(workers),
        num_ranks=len(ranks),
        num_done=num_done,
    )
    return Coordinator(
        dispatcher,
        allocator,
        workers,
        ranks,
        observer,
        timeout_seconds=setup.config.pipeline.timeout_seconds,
        max_bad_samples=setup.config.pipeline.max_bad_samples,
    )


def _start_workers(setup: PipelineSetup, arena: Arena, children: list[Child]) -> list[Child]:
    section = setup.config.pipeline
    workers = []
    for number, device in enumerate(section.target_devices):
        task = WorkerTask(
            setup.config,
            setup.data,
            device,
            _num_processes(setup),
            setup.drafter.target_layer_ids,
            setup.arena,
            arena.name,
        )
        workers.append(start(work, task, f"target worker {number} ({device})", number))
        children.append(workers[-1])
    return workers


def _start_ranks(
    setup: PipelineSetup, arena: Arena, checkpoint: Checkpoint | None, children: list[Child]
) -> list[Child]:
    section = setup.config.pipeline
    port = _free_port()
    ranks = []
    for rank, device in enumerate(section.drafter_devices):
        task = RankTask(
            setup.config,
            setup.data,
            device,
            rank,
            len(section.drafter_devices),
            port,
            _num_processes(setup),
            setup.arena,
            arena.name,
            None if checkpoint is None else str(checkpoint.path),
        )
        ranks.append(start(train, task, f"drafter rank {rank} ({device})", rank))
        children.append(ranks[-1])
    return ranks


def _num_processes(setup: PipelineSetup) -> int:
    """Processes that share the cores: those on the CPU."""
    section = setup.config.pipeline
    devices = (*section.target_devices, *section.drafter_devices)
    return max(1, sum(torch.device(device).type == "cpu" for device in devices))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Note the first SIGINT or SIGTERM; the second interrupts whatever is going on."""
    stop = False

    def note(_number: int, _frame: object) -> None:
        nonlocal stop
        if stop:
            raise KeyboardInterrupt
        stop = True

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield lambda: stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
