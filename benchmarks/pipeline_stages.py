"""Devices that are imitated, inside the real pipeline: a stage takes the seconds that it is given.

Plan, dispatcher, processes, messages, reading, arena and training loop are the product's own. Only
the forward of the target and the learning of a step take what a cost model says, and no core of
this machine; so any number of devices is imitated. Every process writes down when its device
worked. With real models it does so too, and nothing else changes.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lengthwise.dflash.dataset import PreparedDataset
from lengthwise.dflash.target import Target
from lengthwise.dflash.training.config import parse_train_config
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.loop import TrainingLoop
from lengthwise.pipeline.copies import Outbox
from lengthwise.pipeline.entries import Entries
from lengthwise.pipeline.rank import train
from lengthwise.pipeline.worker import _Worker, work
from support.dflash_models import EOS_TOKEN, MASK_TOKEN
from support.dflash_runs import write_target

if TYPE_CHECKING:
    from lengthwise.core.cost import CostModel

LOGS = "stages"


@dataclass(frozen=True)
class Stages:
    """What the stages of a pipeline cost; None: what the real ones do.

    Attributes:
        target: seconds of a batch by (batch size, longest), as `StepTime` gives them.
        drafter: seconds of a rank's part of a step by (1, its real tokens).
        reading_seconds: that every sample takes to be read before its batch can run.
        slow_rank: a rank, and how many times longer than the others it takes; None for none.
    """

    target: CostModel | None = None
    drafter: CostModel | None = None
    reading_seconds: float = 0.0
    slow_rank: tuple[int, float] | None = None

    @property
    def entries(self):
        """For `run_pipeline`."""
        return Entries(
            work=ImitatedTarget(self.target, self.reading_seconds),
            train=ImitatedDrafter(self.drafter, self.slow_rank),
        )


@dataclass(frozen=True)
class ImitatedTarget:
    """The body of a target worker whose device takes given seconds for a batch.

    As on CUDA the process only hands the batch over; it prepares the next one meanwhile, and says
    that a batch has arrived when the device is through with it.
    """

    cost: CostModel | None
    reading_seconds: float

    def __call__(self, wire, task):
        """Work until told to leave."""
        log = Log(task, f"target-{os.getpid()}")
        if self.reading_seconds:
            read_slowly(self.reading_seconds)
        if self.cost is None:
            time_features(log)
        else:
            Device(self.cost, wire, log).take_over()
        _Worker.serve = log.begun_by(_Worker.serve)
        work(wire, task)
        log.write()


def read_slowly(seconds):
    """From now on every sample takes some time to be read."""
    plain = PreparedDataset.__getitem__

    def read(dataset, sample):
        time.sleep(seconds)
        return plain(dataset, sample)

    PreparedDataset.__getitem__ = read


def time_features(log):
    """From now on the time of every forward is written down."""
    plain = Target.features

    def features(target, input_ids, attention_mask, layer_ids):
        if attention_mask is None:  # the check of a model that was just loaded
            return plain(target, input_ids, attention_mask, layer_ids)
        began = time.monotonic()
        found = plain(target, input_ids, attention_mask, layer_ids)
        log.add(began, time.monotonic(), int(attention_mask.sum()), input_ids.numel())
        return found

    Target.features = features


class Device:
    """Does one batch after the other, beside the process that hands them over."""

    def __init__(self, cost, wire, log):
        """Nothing to do yet."""
        self._cost = cost
        self._wire = wire
        self._log = log
        self._free = time.monotonic()
        self._pieces = []
        self._leaving = queue.Queue()

    def take_over(self):
        """From now on the target's forward is this device's work."""
        plain = Target.features

        def features(target, input_ids, attention_mask, layer_ids):
            if attention_mask is None:
                return plain(target, input_ids, attention_mask, layer_ids)
            self._run(input_ids.shape, int(attention_mask.sum()))
            width = len(layer_ids) * target.hidden_size
            return torch.zeros(1, 1, width, dtype=target.dtype).expand(*input_ids.shape, width)

        def send(_outbox, message, _features):
            self._leaving.put((message, self._pieces))
            self._pieces = []

        Target.features, Outbox.send = features, send
        threading.Thread(target=self._wait, daemon=True).start()

    def _run(self, shape, real):
        if not self._log.begun:  # who rehearses waits for the end
            time.sleep(seconds_of(self._cost, *shape))
            return
        idle_since, now = self._free, time.monotonic()
        began = max(idle_since, now)
        self._free = began + seconds_of(self._cost, *shape)
        self._pieces.append((began - idle_since, self._free - began, self._free))
        self._log.add(began, self._free, real, shape[0] * shape[1])

    def _wait(self):
        while True:
            message, pieces = self._leaving.get()
            for _, _, over in pieces:
                time.sleep(max(0.0, over - time.monotonic()))
            idle, busy = (sum(piece[place] for piece in pieces) for place in (0, 1))
            self._wire.send(replace(message, busy_seconds=busy, wait_seconds=idle))


@dataclass(frozen=True)
class ImitatedDrafter:
    """The body of a drafter rank whose steps take given seconds; ranks still meet at each."""

    cost: CostModel | None
    slow_rank: tuple[int, float] | None

    def __call__(self, wire, task):
        """Train to the end."""
        plain, run, log = Learner.learn, TrainingLoop.run, Log(task, f"drafter-{task.rank}")
        slow = self.slow_rank is not None and self.slow_rank[0] == task.rank
        factor = self.slow_rank[1] if slow else 1.0
        own = 0.0  # seconds of the update before, which are part of what a step takes

        def learn(learner, samples, epoch):
            nonlocal own
            tokens, began = sum(map(len, samples)), time.monotonic()
            if self.cost is None:
                result = plain(learner, samples, epoch)
            else:
                given = factor * seconds_of(self.cost, 1, tokens) if tokens else 0.0
                time.sleep(max(0.0, given - own))
                updating, met = time.monotonic(), learner.update.meetings.seconds
                result = learner.update.step()
                own = time.monotonic() - updating - (learner.update.meetings.seconds - met)
            log.add(began, time.monotonic(), tokens, tokens)
            return result

        Learner.learn, TrainingLoop.run = learn, log.begun_by(run)
        train(wire, task)
        log.write()


def seconds_of(cost, batch_size, longest):
    """What the cost model says."""
    return float(cost(np.array([batch_size]), np.array([longest]))[0])


class Log:
    """When a process worked, on the machine's monotonic clock, the same for all of them."""

    def __init__(self, task, name):
        """Of one process."""
        self._path = Path(task.config.output_dir, LOGS, f"{name}.json")
        self._pieces = []
        self.begun = False

    def add(self, began, ended, real, padded):
        """A piece of work."""
        self._pieces.append((began, ended, real, padded))

    def begun_by(self, function):
        """The function, with which it begins: what was rehearsed before is no part of the run."""

        def begin(*arguments):
            self._pieces.clear()
            self.begun = True
            return function(*arguments)

        return begin

    def write(self):
        """All of it, at the end."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._pieces), encoding="utf-8")


def read_logs(output):
    """Stage -> one array a process: (began, ended, real tokens, padded tokens) of each piece."""
    found = {"target": [], "drafter": []}
    for path in sorted(Path(output, LOGS).glob("*.json")):
        pieces = np.array(json.loads(path.read_text(encoding="utf-8")), float)
        found[path.name.split("-")[0]].append(pieces.reshape(-1, 4))
    return found


def write_run_folder(folder, lengths, *, ids=None, highest=EOS_TOKEN, target=()):
    """A small target and prepared samples of given lengths, whose latter half is to be learnt.

    Args:
        folder: to write into.
        lengths: tokens of every sample.
        ids: all tokens, one sample after the other; None draws them.
        highest: what drawn ids are below.
        target: sizes of the target, unlike those of tests; None for no target.
    """
    lengths, folder = np.asarray(lengths, np.int64), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if target is not None:
        sizes = {"max_position_embeddings": int(lengths.max()), **dict(target)}
        write_target(folder / "target", **sizes)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    if ids is None:
        ids = np.random.default_rng(0).integers(0, highest, int(offsets[-1]))
    places = np.arange(ids.size) - np.repeat(offsets[:-1], lengths)
    mask = places >= np.repeat(lengths // 2, lengths)
    table = pa.table(
        {
            "input_ids": pa.ListArray.from_arrays(offsets, pa.array(ids, pa.int32())),
            "loss_mask": pa.ListArray.from_arrays(offsets, pa.array(mask)),
            "seq_len": pa.array(lengths, pa.int32()),
        }
    )
    pq.write_table(table, folder / "samples.parquet", row_group_size=16)
    return folder


def stage_config(folder, output, *, workers=1, ranks=1, **sections):
    """A run over such a folder that does nothing but learn; ``sections`` are merged in."""
    values = {
        "output_dir": str(output),
        "target": {"model": str(Path(folder, "target")), "dtype": "float32"},
        "drafter": {"mask_token_id": MASK_TOKEN, "num_hidden_layers": 1, "block_size": 4},
        "data": {"train": [str(Path(folder, "samples.parquet"))], "num_held_out": 0},
        "epochs": 1,
        "evaluation": {"num_prompts": 0},
        "checkpoint": {"every_steps": 1_000_000},
        "pipeline": {
            "target_devices": ["cpu"] * workers,
            "drafter_devices": ["cpu"] * ranks,
            "probe_rounds": 0,
        },
    }
    for name, value in sections.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return parse_train_config(values)
