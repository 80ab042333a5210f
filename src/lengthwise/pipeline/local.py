"""The engine of one machine: processes, a socket each, and features in shared memory."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from lengthwise.pipeline.children import end_all, messages, start
from lengthwise.pipeline.rank import RankTask
from lengthwise.pipeline.worker import WorkerTask, shapes_to_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lengthwise.dflash.training.places import Location
    from lengthwise.pipeline.arena import Arena
    from lengthwise.pipeline.children import LocalChild
    from lengthwise.pipeline.crew import Child
    from lengthwise.pipeline.entries import Entries
    from lengthwise.pipeline.setup import PipelineSetup

LOOPBACK = "127.0.0.1"
LISTEN_SECONDS = 1.0


class LocalCrew:
    """The processes of a run; see :class:`~lengthwise.pipeline.crew.Crew`.

    Args:
        arena: where features wait; closed at the end. None: the children have no need of it.
    """

    def __init__(self, arena: Arena | None = None) -> None:
        """Nobody has been started."""
        self.workers: list[LocalChild] = []
        self.ranks: list[LocalChild] = []
        self.listen_seconds = LISTEN_SECONDS
        self._arena = arena
        self._store: Any = None

    def start(self, setup: PipelineSetup, saved: Location | None, entries: Entries) -> None:
        """Start all processes.

        Args:
            setup: what is to run.
            saved: a checkpoint to go on from.
            entries: what the processes run.
        """
        assert self._arena is not None, "features need a place"
        section, shapes = setup.config.pipeline, shapes_to_time(setup)
        place, num_processes = self._arena.place, _num_processes(setup)
        for number, device in enumerate(section.targets):
            task = WorkerTask(
                setup.config,
                setup.data,
                device,
                num_processes,
                setup.drafter.target_layer_ids,
                place,
                shapes,
            )
            self.workers.append(
                start(entries.work, task, f"target worker {number} ({device})", number)
            )
        self._store = _meeting_place()
        for rank, device in enumerate(section.drafters):
            rank_task = RankTask(
                setup.config,
                setup.data,
                device,
                rank,
                len(section.drafters),
                (LOOPBACK, self._store.port),
                num_processes,
                place,
                None if saved is None else str(saved),
            )
            self.ranks.append(
                start(entries.train, rank_task, f"drafter rank {rank} ({device})", rank)
            )

    def messages(self, children: Iterable[Child], seconds: float) -> Iterator[tuple[Child, Any]]:
        """What children say within some time."""
        return messages(cast("Iterable[LocalChild]", children), seconds)

    def all_ready(self) -> None:
        """All have attached to the arena, which needs no name any more."""
        if self._arena is not None:
            self._arena.hide()

    def end(self, *, at_once: bool) -> None:
        """End all processes, and let go of the arena."""
        end_all([*self.workers, *self.ranks], at_once=at_once)
        if self._arena is not None:
            self._arena.close()


def _num_processes(setup: PipelineSetup) -> int:
    """Processes that share the cores: those on the CPU."""
    section = setup.config.pipeline
    devices = (*section.targets, *section.drafters)
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
