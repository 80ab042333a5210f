"""Training through a pipeline, from a config to an outcome."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lengthwise.dflash.training.places import place_in, remove_folder
from lengthwise.dflash.training.progress import Outcome, Position
from lengthwise.dflash.training.resume import check_same_run
from lengthwise.pipeline.arena import Arena
from lengthwise.pipeline.coordinator import Coordinator
from lengthwise.pipeline.entries import ENTRIES, Entries
from lengthwise.pipeline.expect import expect
from lengthwise.pipeline.local import LocalCrew
from lengthwise.pipeline.once import Once
from lengthwise.pipeline.rank import SNAPSHOTS
from lengthwise.pipeline.setup import dispatcher_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lengthwise.calibrate import Measurement
    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.dflash.training.places import Location
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
        num_done, saved = checkpoint.num_steps, checkpoint.place
    snapshots = place_in(setup.config.shared_dir, SNAPSHOTS)
    remove_folder(snapshots)
    run = _run_on_ray if setup.config.pipeline.engine == "ray" else _run_locally
    outcome = run(setup, num_done, saved, observer, entries)
    remove_folder(snapshots)
    if outcome is None:  # stopped while models were being loaded
        place = Position.after(num_done, setup.plan.steps_per_epoch)
        outcome = Outcome(place, interrupted=num_done < setup.plan.num_steps, checkpoint=saved)
    return outcome


def _run_locally(
    setup: PipelineSetup,
    num_done: int,
    saved: Location | None,
    observer: PipelineObserver,
    entries: Entries,
) -> Outcome | None:
    with _signals() as stop_wanted:
        crew = LocalCrew(Arena(setup.arena))
        with _ending(crew) as ends:
            crew.start(setup, saved, entries)
            return ends(_coordinator(setup, crew, observer, num_done).run(stop_wanted))


def _run_on_ray(
    setup: PipelineSetup,
    num_done: int,
    saved: Location | None,
    observer: PipelineObserver,
    entries: Entries,
) -> Outcome | None:
    from lengthwise.cluster.connect import connected
    from lengthwise.pipeline.on_ray.crew import RayCrew

    # Ray takes SIGTERM for itself as it connects, so signals come after that.
    with connected(setup.config.pipeline.ray.address), _signals() as stop_wanted:
        crew = RayCrew(setup, saved, entries)
        with _ending(crew) as ends:
            crew.start()
            coordinator = _coordinator(setup, crew, Once(observer), num_done, crew)
            return ends(coordinator.run(stop_wanted))


@contextmanager
def _ending(crew: Crew) -> Iterator[Callable[[Outcome | None], Outcome | None]]:
    """End a crew in any case; in good order where it has been told to leave.

    Yields:
        What takes the outcome; there is one where all have been told to leave.
    """
    at_once = True

    def take(outcome: Outcome | None) -> Outcome | None:
        nonlocal at_once
        at_once = outcome is None
        return outcome

    try:
        yield take
    finally:
        crew.end(at_once=at_once)


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
        dispatcher_of(setup, num_done, num_workers=len(crew.workers)),
        crew,
        observer,
        timeout_seconds=setup.config.pipeline.timeout_seconds,
        max_bad_samples=setup.config.pipeline.max_bad_samples,
        when_ready=when_ready,
        reserve=reserve,
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
