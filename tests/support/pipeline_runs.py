"""Small runs of the pipeline, with real processes.

Importing torch and transformers takes each process seconds. Tests of what processes do with each
other therefore make them from one server that has imported everything (`quick_processes`); those
of how processes are made use the product's own way.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

from lengthwise.dflash.training.setup import store_of
from lengthwise.pipeline import children
from lengthwise.pipeline.entries import ENTRIES
from lengthwise.pipeline.rank import train
from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from lengthwise.pipeline.source import PipelineSource
from lengthwise.pipeline.worker import work
from support.dflash_runs import Silent, small_config

PRELOADED = [
    "lengthwise.pipeline.run",
    "lengthwise.core.kernels.remix",
    "pyarrow.parquet",
    "transformers.models.qwen3.modeling_qwen3",
    "torch.distributed",
    "support.pipeline_runs",
]
BOUND_SECONDS = 480
"""Within which a run of a few steps must end whatever happens to it, on a busy machine."""


def quick_context():
    """Processes from a server that has imported everything."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@contextmanager
def quick_processes():
    """Inside, children of a pipeline come from the server."""
    before, children.CONTEXT = children.CONTEXT, quick_context()
    try:
        yield
    finally:
        children.CONTEXT = before


@contextmanager
def bounded_processes():
    """Children come from the server, and nothing inside may take for ever."""
    began = time.monotonic()
    with quick_processes():
        yield
    assert time.monotonic() - began < BOUND_SECONDS


class Watching(Silent):
    """Keeps what it is told, and does something when a step is done.

    Args:
        after: optimiser steps, all in all, after which ``act`` is called once with this observer.
    """

    def __init__(self, after=None, act=None):
        super().__init__()
        self.after, self.act = after, act
        self.pids, self.memory, self.flows = {}, set(), 0

    def stepped(self, position, result, facts):
        super().stepped(position, result, facts)
        self.look()
        # While it is in use its name is gone already, so nobody need be left to remove it.
        assert self.memory
        assert not any(Path(name).exists() for name in self.memory)
        if position.num_steps == self.after:
            self.act(self)

    def flowed(self, flow):
        self.flows += 1
        self.flow = flow
        self.look()

    def look(self):
        """Note which processes there are and which shared memory this one has."""
        self.pids |= {child.name: child.pid for child in multiprocessing.active_children()}
        self.memory |= shared_memory()

    @property
    def losses(self):
        return [result.sums.loss for _, result, _ in self.steps]

    def kill(self, name, number):
        """Send a signal to the children whose name begins so."""
        self.look()
        chosen = [pid for child, pid in self.pids.items() if child.startswith(name)]
        assert chosen
        for pid in chosen:
            os.kill(pid, number)


def shared_memory():
    """Files in /dev/shm that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {word for line in lines for word in line.split() if word.startswith("/dev/shm/psm_")}


def check_nothing_left(observer):
    """No process and no shared memory of a run; seen before, so that the check can fail."""
    assert observer.pids
    assert observer.memory
    check_gone(observer.pids.values())
    assert not any(Path(name).exists() for name in observer.memory)


def check_gone(pids, seconds=60):
    """All processes have ended; a server reaps its own a moment later."""
    until = time.monotonic() + seconds
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.05)


def alive(pid):
    """Whether a process runs; one that has ended and was not reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def pipeline_config(folder, output, *, workers=2, ranks=1, **changes):
    section = {
        "target_devices": ["cpu"] * workers,
        "drafter_devices": ["cpu"] * ranks,
        "page_tokens": 8,
        "timeout_seconds": 120,
        "probe_rounds": 0,
        **changes.pop("pipeline", {}),
    }
    return small_config(folder, output, pipeline=section, **changes)


def run(folder, output, observer=None, entries=ENTRIES, **changes):
    """From the newest checkpoint to the end, or to whatever happens: outcome and observer."""
    config = pipeline_config(folder, output, **changes)
    setup, saved = set_up_pipeline(config), store_of(config).latest()
    observer = observer or Watching()
    return run_pipeline(setup, saved, observer, entries), observer


def slow_work(wire, task):
    """A target worker that dawdles at random before it does anything."""
    from lengthwise.pipeline.worker import _Worker

    draw, plain = random.Random(os.getpid()), _Worker._run

    def run_slowly(self, *arguments):
        time.sleep(draw.uniform(0, 0.1))
        plain(self, *arguments)

    _Worker._run = run_slowly
    work(wire, task)


def recording_train(wire, task):
    """A drafter rank that writes down which samples it takes, a line a step."""
    plain, epoch = PipelineSource.take, [0]

    def begin(self, what, num_done, plain=PipelineSource.begin):
        epoch[0] = what.number
        plain(self, what, num_done)

    def take(self, step):
        samples = plain(self, step)
        if samples is not None:
            ids = [sample.sample_id for sample in samples]
            place = Path(task.config.output_dir, "taken.jsonl")
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("a") as file:
                file.write(json.dumps([epoch[0], step, task.rank, ids]) + "\n")
        return samples

    PipelineSource.begin, PipelineSource.take = begin, take
    train(wire, task)


def taken(output):
    """(epoch, step) -> rank -> sample ids, as ranks wrote them down."""
    steps = {}
    for line in (output / "taken.jsonl").read_text().splitlines():
        epoch, step, rank, ids = json.loads(line)
        assert rank not in steps.setdefault((epoch, step), {})
        steps[epoch, step][rank] = ids
    return steps


def start_apart(body, *arguments):
    """A coordinator of its own, to be killed: a process that makes its children as quickly.

    It has its own tracker of shared memory, as a process begun by a user has, and the server's
    address, which children of a server are not told.
    """
    context = quick_context()
    forkserver.ensure_running()
    address = forkserver._forkserver._forkserver_address
    process = context.Process(target=_apart, args=(address, body, arguments))
    process.start()
    return process


def _apart(address, body, arguments):
    resource_tracker._resource_tracker = resource_tracker.ResourceTracker()
    for name in ("ensure_running", "getfd", "register", "unregister"):
        setattr(resource_tracker, name, getattr(resource_tracker._resource_tracker, name))
    server = forkserver._forkserver
    server._forkserver_address = address
    server.ensure_running = resource_tracker.ensure_running
    with quick_processes():
        body(*arguments)
