"""Training through a pipeline, from a config to an outcome."""

from __future__ import annotations

import shutil
import signal
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lengthwise.dflash.training.probe import batch_shapes
from lengthwise.dflash.training.progress import Outcome, Position
from lengthwise.dflash.training.resume import check_same_run
from lengthwise.pipeline.arena import Arena
from lengthwise.pipeline.children import end_all, start
from lengthwise.pipeline.coordinator import Coordinator
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.entries import ENTRIES, Entries
from lengthwise.pipeline.expect import expect
from lengthwise.pipeline.pages import PageAllocator
from lengthwise.pipeline.rank import LOOPBACK, SNAPSHOTS, RankTask
from lengthwise.pipeline.worker import WorkerTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.calibrate import Measurement
    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.pipeline.children import Child
    from lengthwise.pipeline.flow import PipelineObserver
    from lengthwise.pipeline.setup import PipelineSetup
    from lengthwise.pipeline.wire import Wire


def run_pipeline(
    setup: PipelineSetup,
    checkpoint: Checkpoint | None,
    observer: PipelineObserver,
    entries: Entries = ENTRIES,
) -> Outcome:
    """Start all processes, run to the end or to a signal, end all processes.

    Args:
        setup: what to run.
        checkpoint: to go on from.
        observer: is told what happens.
        entries: what its processes run.

    Raises:
        CheckpointError: the checkpoint belongs to another run.
        TrainingError: a process failed; see :meth:`Coordinator.run`.
    """
    num_done, saved = 0, None
    if checkpoint is not None:
        check_same_run(checkpoint, setup.config, setup.plan.fingerprint)
        num_done, saved = checkpoint.num_steps, checkpoint.path
    shutil.rmtree(Path(setup.config.output_dir) / SNAPSHOTS, ignore_errors=True)
    children: list[Child] = []
    at_once = True
    with _signals() as stop_wanted:
        arena = Arena(setup.arena)
        try:
            workers = _start_workers(setup, arena, entries.work, children)
            store = _meeting_place()
            ranks = _start_ranks(setup, arena, entries.train, saved, store.port, children)
            coordinator = _coordinator(setup, arena, workers, ranks, observer, num_done)
            outcome = coordinator.run(stop_wanted)
            at_once = outcome is None
        finally:
            end_all(children, at_once=at_once)
            arena.close()
    if outcome is None:  # stopped while models were being loaded
        place = Position.after(num_done, setup.plan.steps_per_epoch)
        outcome = Outcome(place, interrupted=num_done < setup.plan.num_steps, checkpoint=saved)
    return outcome


def _coordinator(
    setup: PipelineSetup,
    arena: Arena,
    workers: list[Child],
    ranks: list[Child],
    observer: PipelineObserver,
    num_done: int,
) -> Coordinator:
    def when_ready() -> None:
        arena.hide()
        found = expect(setup, num_done, _timings(workers), _timings(ranks))
        if found is not None:
            found.write(setup.config.output_dir)
            observer.expected(found)

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
        when_ready=when_ready,
    )


def _timings(children: list[Child]) -> list[Measurement]:
    return [one for child in children for one in child.timings]


def _start_workers(
    setup: PipelineSetup,
    arena: Arena,
    body: Callable[[Wire, WorkerTask], None],
    children: list[Child],
) -> list[Child]:
    section = setup.config.pipeline
    shapes = tuple(batch_shapes(setup.plan.epoch(0).mix.arrivals)) if section.probe_rounds else ()
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
            shapes,
        )
        workers.append(start(body, task, f"target worker {number} ({device})", number))
        children.append(workers[-1])
    return workers


def _start_ranks(
    setup: PipelineSetup,
    arena: Arena,
    body: Callable[[Wire, RankTask], None],
    saved: Path | None,
    port: int,
    children: list[Child],
) -> list[Child]:
    section = setup.config.pipeline
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
            None if saved is None else str(saved),
        )
        ranks.append(start(body, task, f"drafter rank {rank} ({device})", rank))
        children.append(ranks[-1])
    return ranks


def _num_processes(setup: PipelineSetup) -> int:
    """Processes that share the cores: those on the CPU."""
    section = setup.config.pipeline
    devices = (*section.target_devices, *section.drafter_devices)
    return max(1, sum(torch.device(device).type == "cpu" for device in devices))


def _meeting_place() -> Any:
    """A store by which ranks find each other; it listens on this machine alone."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(  # type: ignore[attr-defined]
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Note the first SIGINT or SIGTERM; the second interrupts whatever is going on.

    Further ones change nothing, so that they cannot interrupt the end of the processes.
    """
    count = 0

    def note(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield lambda: count > 0
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
