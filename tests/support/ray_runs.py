"""Small runs of the pipeline on Ray."""

from __future__ import annotations

import os
import time

from lengthwise.pipeline.entries import ENTRIES
from support.dflash_runs import Silent
from support.pipeline_runs import run


class RayWatching(Silent):
    """Keeps what it is told, and does something when a step is done.

    Args:
        after: optimiser steps, all in all, after which ``act`` is called once with this observer.
    """

    def __init__(self, after=None, act=None):
        super().__init__()
        self.after, self.act, self.flow = after, act, None

    def stepped(self, position, result, facts):
        super().stepped(position, result, facts)
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


def run_on_ray(folder, output, observer=None, entries=ENTRIES, **changes):
    """From the newest checkpoint to the end, or to whatever happens: outcome and observer."""
    more = {"engine": "ray", **changes.pop("pipeline", {})}
    observer = observer or RayWatching()
    return run(folder, output, observer, entries, pipeline=more, **changes)


def actors():
    """Pid of each living actor of a pipeline, by Ray's own table."""
    import ray

    table = ray._private.state.actors().values()
    return [
        one["Pid"]
        for one in table
        if one["State"] == "ALIVE" and one["ActorClassName"] == "ChildActor"
    ]


def check_nothing_left_on_ray(seconds=20):
    """No actor, no placement group that is not removed, no object that is referred to."""
    import ray

    def left():
        groups = ray.util.placement_group_table().values()
        return [
            *actors(),
            *[group for group in groups if group["state"] != "REMOVED"],
            *(
                []
                if ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"]
                else [1]
            ),
        ]

    until = time.monotonic() + seconds
    while found := left():
        assert time.monotonic() < until, found
        time.sleep(0.1)


def pid_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
