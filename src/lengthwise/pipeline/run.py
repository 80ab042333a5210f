"""Training through a pipeline, from a config to an outcome."""

from __future__ import annotations

import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.dflash.training.progress import Outcome, Position
from lengthwise.dflash.training.resume import check_same_run
from lengthwise.pipeline.arena import Arena
from lengthwise.pipeline.coordinator import Coordinator
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.entries import ENTRIES, Entries
from lengthwise.pipeline.expect import expect
from lengthwise.pipeline.local import LocalCrew
from lengthwise.pipeline.pages import PageAllocator
from lengthwise.pipeline.rank import SNAPSHOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lengthwise.calibrate import Measurement
    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.pipeline.crew import Child, Crew, Reserve
    from lengthwise.pipeline.flow import PipelineObserver
    from lengthwise.pipeline.setup import PipelineSetup


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
    with _signals() as stop_wanted:
        crew = LocalCrew(Arena(setup.arena))
        at_once = True
        try:
            crew.start(setup, saved, entries)
            outcome = _coordinator(setup, crew, observer, num_done).run(stop_wanted)
            at_once = outcome is None
        finally:
            crew.end(at_once=at_once)
    if outcome is None:  # stopped while models were being loaded
        place = Position.after(num_done, setup.plan.steps_per_epoch)
        outcome = Outcome(place, interrupted=num_done < setup.plan.num_steps, checkpoint=saved)
    return outcome


def _coordinator(
    setup: PipelineSetup,
    crew: Crew,
    observer: PipelineObserver,
    num_done: int,
    reserve: Reserve | None = None,
) -> Coordinator:
    def when_ready() -> None:
        crew.all_ready()
        found = expect(setup, num_done, _timings(crew.workers), _timings(crew.ranks))
        if found is not None:
            found.write(setup.config.output_dir)
            observer.expected(found)

    return Coordinator(
        make_dispatcher(setup, num_done, num_workers=len(crew.workers)),
        crew,
        observer,
        timeout_seconds=setup.config.pipeline.timeout_seconds,
        max_bad_samples=setup.config.pipeline.max_bad_samples,
        when_ready=when_ready,
        reserve=reserve,
    )


def make_dispatcher(setup: PipelineSetup, num_done: int, *, num_workers: int) -> Dispatcher:
    """What decides who does what, where ``num_done`` steps are done."""
    return Dispatcher(
        setup.plan,
        setup.data.dataset.lengths,
        PageAllocator(setup.arena.num_pages, setup.arena.page_tokens),
        num_workers=num_workers,
        num_ranks=len(setup.config.pipeline.drafters),
        num_done=num_done,
    )


def _timings(children: Sequence[Child]) -> list[Measurement]:
    return [one for child in children for one in child.timings]


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
