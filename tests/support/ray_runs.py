"""Small runs of the pipeline on Ray."""

from __future__ import annotations

import os
import time

from lengthwise.pipeline.entries import ENTRIES
from support.dflash_runs import Silent
from support.pipeline_runs import run

PATIENCE = 600
"""Seconds for an actor to import everything and load its model on a busy machine."""


class RayWatching(Silent):
    """Keeps what it is told, and does something when a step is done.

    Args:
        after: optimiser steps, all in all, after which ``act`` is called once with this observer.
    """

    def __init__(self, after=None, act=None):
        super().__init__()
        self.after, self.act, self.flow = after, act, None
        self.pids = {}

    def stepped(self, position, result, facts):
        super().stepped(position, result, facts)
        self.pids |= actors()
        if position.num_steps == self.after:
            self.act(self)

    def flowed(self, flow):
        self.flow = flow

    @property
    def losses(self):
        return [result.sums.loss for _, result, _ in self.steps]

    @property
    def places(self):
        return [place.num_steps for place, _, _ in self.steps]


def killing(name, number, after=2):
    """An observer that sends a signal to the processes of actors whose name begins so."""

    def act(seen):
        chosen = [pid for child, pid in actors().items() if child.startswith(name)]
        assert chosen
        seen.killed = chosen
        for pid in chosen:
            os.kill(pid, number)

    return RayWatching(after, act)


def run_on_ray(folder, output, observer=None, entries=ENTRIES, **changes):
    """From the newest checkpoint to the end, or to whatever happens: outcome and observer."""
    more = {"engine": "ray", "timeout_seconds": PATIENCE, **changes.pop("pipeline", {})}
    observer = observer or RayWatching()
    return run(folder, output, observer, entries, pipeline=more, **changes)


def actors():
    """Name of each living actor of a pipeline -> its process, by Ray's own table."""
    import ray

    return {
        one["Name"].removeprefix("lengthwise "): one["Pid"]
        for one in ray._private.state.actors().values()
        if one["State"] == "ALIVE" and one["ActorClassName"] == "ChildActor"
    }


def left_on_ray():
    """Actors, placement groups, resources and objects of a pipeline that are still there."""
    import ray

    groups = ray.util.placement_group_table().values()
    free, there = ray.available_resources(), ray.cluster_resources()
    names = ("CPU", "object_store_memory")
    return [
        *actors(),
        *(group for group in groups if group["state"] != "REMOVED"),
        *(name for name in names if free.get(name) != there[name]),
    ]


def check_nothing_left_on_ray(observer, seconds=60):
    """All is given back; actors were seen before, so that the check can fail."""
    assert observer.pids
    until = time.monotonic() + seconds
    while found := left_on_ray():
        assert time.monotonic() < until, found
        time.sleep(0.1)
