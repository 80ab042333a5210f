"""The actors of a run: started, heard, replaced, ended."""

from __future__ import annotations

import pickle
import secrets
import time
from typing import TYPE_CHECKING, Any, cast

from lengthwise.cluster.connect import require_ray
from lengthwise.dflash.training.setup import store_of
from lengthwise.errors import TrainingError
from lengthwise.pipeline.crew import Fresh
from lengthwise.pipeline.on_ray.actor import ChildActor
from lengthwise.pipeline.on_ray.child import GRACE_SECONDS, RayChild, Shelf, ending_of
from lengthwise.pipeline.on_ray.features import ObjectPlace
from lengthwise.pipeline.on_ray.placement import check_object_stores, request, reserve_place
from lengthwise.pipeline.on_ray.wish import Wish
from lengthwise.pipeline.rank import RankTask
from lengthwise.pipeline.setup import dispatcher_of
from lengthwise.pipeline.worker import WorkerTask, shapes_to_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lengthwise.calibrate import Shape
    from lengthwise.dflash.training.places import Location
    from lengthwise.pipeline.crew import Child
    from lengthwise.pipeline.entries import Entries
    from lengthwise.pipeline.on_ray.features import Pages
    from lengthwise.pipeline.setup import PipelineSetup

LISTEN_SECONDS = 30.0
"""After a rank's error; that a machine is lost is found out by its silence."""


class RayCrew:
    """All actors of a run; see :class:`~lengthwise.pipeline.crew.Crew` and ``Reserve``.

    Args:
        setup: what is to run.
        saved: a checkpoint to go on from.
        entries: what the actors run.
    """

    def __init__(self, setup: PipelineSetup, saved: Location | None, entries: Entries) -> None:
        """Nobody has been started."""
        self.workers: list[RayChild] = []
        self.ranks: list[RayChild] = []
        self.listen_seconds = LISTEN_SECONDS
        self._setup = setup
        self._section = setup.config.pipeline
        self._saved = saved
        self._entries = entries
        self._place = ObjectPlace(setup.arena)
        self._shelf: Shelf = {}
        self._group: Any = None
        self._data: Any = None
        self._all: list[RayChild] = []
        self._num_added = self._num_replaced = self._num_restarts = 0
        self._wish = Wish(setup.config.output_dir, len(self._section.targets))

    def start(self) -> None:
        """Find a place for all actors, and start them.

        Raises:
            ConfigError: the cluster has not what they need.
        """
        self._group = reserve_place(self._section)
        check_object_stores(self._group, self._section, self._setup.arena)
        self._data = require_ray().put(pickle.dumps(self._setup.data))
        shapes = shapes_to_time(self._setup)
        self.workers = [
            self._worker(number, number, shapes) for number in range(len(self._section.targets))
        ]
        self.ranks = self._start_ranks()

    def messages(self, children: Iterable[Child], seconds: float) -> Iterator[tuple[Child, Any]]:
        """What children say within some time."""
        present = [child for child in cast("Iterable[RayChild]", children) if not child.gone]
        pending = [reference for child in present for reference in child.pending]
        if not pending:
            time.sleep(seconds)
            return
        ray = require_ray()
        ray.wait(pending, num_returns=1, timeout=seconds, fetch_local=False)
        there, _ = ray.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
        ready = set(there)
        for child in present:
            for message in child.heard(ready):
                yield child, message
            if child.overdue and not child.gone:
                child.leave("was killed")
                yield child, None

    def all_ready(self) -> None:
        """Nothing: there is nothing that they share."""

    def end(self, *, at_once: bool) -> None:
        """End all actors and give their place back."""
        ray = require_ray()
        left = [child for child in self._all if not child.gone]
        if left and not at_once:
            ending = [child.actor.ended.remote() for child in left]
            ray.wait(ending, num_returns=len(ending), timeout=GRACE_SECONDS, fetch_local=False)
        self._kill(left)
        self._shelf.clear()
        self._data = None
        if self._group is not None:
            ray.util.remove_placement_group(self._group)

    def replace(self, worker: Child) -> RayChild | None:
        """A worker in place of one that was lost, in its place of the cluster."""
        if self._num_replaced >= self._section.ray.max_replacements:
            return None
        self._num_replaced += 1
        return self._worker(worker.number, cast("RayChild", worker).bundle)

    def add(self) -> RayChild:
        """Another worker, wherever the cluster has room."""
        self._num_added += 1
        return self._worker(len(self._section.targets) + self._num_added - 1, None)

    def wanted_targets(self) -> int | None:
        """How many target workers there are to be, where the user has said so anew."""
        return self._wish.news()

    def lost_features(self) -> set[Pages]:
        """Pages of features that are lost with the machines they waited on."""
        gone = {node["NodeID"] for node in require_ray().nodes() if not node["Alive"]}
        return {pages for pages, (_, node_id) in self._shelf.items() if node_id in gone}

    def restart(self) -> Fresh | None:
        """All ranks anew, from the newest checkpoint."""
        limit = self._section.ray.max_restarts
        if self._num_restarts >= limit:
            return None
        self._num_restarts += 1
        self._kill([rank for rank in self.ranks if not rank.gone])
        for worker in self._all:
            worker.forget_batches()
        self._shelf.clear()
        newest = store_of(self._setup.config).latest()
        num_done = 0 if newest is None else newest.num_steps
        self._saved = None if newest is None else newest.place
        self.ranks = self._start_ranks()
        words = f"all ranks go on from step {num_done:,} (restart {self._num_restarts} of {limit})"
        return Fresh(self.ranks, dispatcher_of(self._setup, num_done, num_workers=0), words)

    def _worker(self, number: int, bundle: int | None, shapes: tuple[Shape, ...] = ()) -> RayChild:
        setup, section = self._setup, self._section
        device = section.targets[number] if number < len(section.targets) else section.targets[-1]
        task = WorkerTask(
            setup.config,
            cast("Any", None),  # travels apart
            device,
            1,
            setup.drafter.target_layer_ids,
            self._place,
            shapes,
        )
        child = self._actor(f"target worker {number} ({device})", number, bundle, device)
        child.begin(pickle.dumps((self._entries.work, task)), self._data)
        return child

    def _start_ranks(self) -> list[RayChild]:
        section = self._section
        first = len(section.targets)
        ranks = [
            self._actor(f"drafter rank {rank} ({device})", rank, first + rank, device)
            for rank, device in enumerate(section.drafters)
        ]
        meeting = self._meeting_place(ranks[0])
        for rank, device in zip(ranks, section.drafters, strict=True):
            task = RankTask(
                self._setup.config,
                cast("Any", None),  # travels apart
                device,
                rank.number,
                len(ranks),
                meeting,
                1,
                self._place,
                None if self._saved is None else str(self._saved),
                self._num_restarts,
            )
            rank.begin(pickle.dumps((self._entries.train, task)), self._data)
        return ranks

    def _meeting_place(self, first: RayChild) -> tuple[str, int]:
        """Host and port of a store by which ranks find each other, with the first of them."""
        ray, seconds = require_ray(), self._section.timeout_seconds
        try:
            host, port = ray.get(first.actor.meet.remote(), timeout=seconds)
        except ray.exceptions.GetTimeoutError as error:
            raise TrainingError(
                f"the cluster had no place for {first.name} within {seconds:,.0f} seconds "
                f"(pipeline.timeout_seconds); the last checkpoint stands as it was"
            ) from error
        except ray.exceptions.RayActorError as error:
            raise TrainingError(f"{first.name} {ending_of(str(error))}, as it began") from error
        return host, port

    def _actor(self, name: str, number: int, bundle: int | None, device: str) -> RayChild:
        ray, section = require_ray(), self._section
        more = section.ray.target_resources
        if bundle is not None and bundle >= len(section.targets):
            more = section.ray.drafter_resources
        wanted = request(device, section.ray.cpus, more)
        strategy = "SPREAD"
        if bundle is not None:
            strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=bundle
            )
        options = {
            "num_cpus": wanted.pop("CPU"),
            "num_gpus": wanted.pop("GPU", 0.0),
            "resources": wanted,
            "scheduling_strategy": strategy,
            "max_restarts": 0,
            "max_task_retries": 0,
            # For whoever looks at the cluster; names must differ there.
            "name": f"lengthwise {name} {secrets.token_hex(4)}",
        }
        actor = ray.remote(ChildActor).options(**options).remote()
        child = RayChild(name, number, actor, self._shelf, bundle)
        self._all.append(child)
        return child

    def _kill(self, children: list[RayChild]) -> None:
        """Kill some, and stay until Ray has noticed, within a bound."""
        ray = require_ray()
        dying = []
        for child in children:
            dying.append(child.actor.ended.remote())
            child.kill()
        if dying:
            ray.wait(dying, num_returns=len(dying), timeout=GRACE_SECONDS, fetch_local=False)
        for child in children:
            child.leave("was ended")
