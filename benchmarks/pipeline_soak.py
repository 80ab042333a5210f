"""Ten thousand batches through the pipeline's channel, with a consumer slower than the producers.

Everything between the models is the product's own: plan, dispatcher, coordinator, arena, processes
and messages. In place of target and drafter stand bodies that write and check values, so that the
memory that is seen is the channel's. It may never be more than its bound, nor grow.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from dataclasses import dataclass

import numpy as np
import process_memory
import torch

from lengthwise.dflash.training.config import parse_train_config
from lengthwise.dflash.training.data import TrainingData
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.progress import Outcome, Position
from lengthwise.pipeline.arena import Arena, ArenaShape
from lengthwise.pipeline.children import start
from lengthwise.pipeline.coordinator import Coordinator
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.local import LocalCrew
from lengthwise.pipeline.messages import (
    Arrived,
    Copied,
    Deliver,
    Finished,
    Learnt,
    Leave,
    Ready,
    RunBatch,
)
from lengthwise.pipeline.pages import PageAllocator, pages_needed

WIDTH = 256
"""Values of a token, in bfloat16: 512 bytes."""
MAX_TOKENS = 4_096
NUM_WORKERS, NUM_RANKS = 2, 2
SLOW_SECONDS = 0.006
"""What a rank takes for a step, beyond looking at it."""
EARLY_SHARE = 0.05
"""Of the run, after which memory is taken for settled."""


@dataclass(frozen=True)
class Task:
    """What a stand-in needs."""

    shape: ArenaShape
    name: str


def mark(sample, num_tokens):
    """What a sample's features are: its number modulo 256, which bfloat16 holds exactly."""
    return torch.full((num_tokens, WIDTH), float(sample % 256), dtype=torch.bfloat16)


def produce(wire, task):
    """In place of a target worker: writes each sample's mark into its pages."""
    torch.set_num_threads(1)
    arena = Arena(task.shape, task.name)
    wire.send(Ready())
    while not isinstance(message := wire.receive(), Leave):
        assert isinstance(message, RunBatch)
        for part in message.parts:
            arena.write(part, mark(part.sample_id, part.num_tokens))
        tokens = sum(part.num_tokens for part in message.parts)
        wire.send(Arrived(message.epoch, message.arrival, {}, tokens, tokens, 0.0, 0.0))
    arena.close()


def consume(wire, task):
    """In place of a drafter rank: copies, checks every value, dawdles."""
    torch.set_num_threads(1)
    arena = Arena(task.shape, task.name)
    wire.send(Ready())
    steps: queue.Queue = queue.Queue()
    threading.Thread(target=receive, args=(wire, arena, steps), daemon=True).start()
    count = 0
    while (samples := steps.get()) is not None:
        for part, features in samples:
            assert bool((features == float(part.sample_id % 256)).all()), f"sample {part.sample_id}"
        time.sleep(SLOW_SECONDS)
        count += 1
        wire.send(Learnt(0.0, SLOW_SECONDS))
        if task.num_steps == count:
            wire.send(Finished(Outcome(Position(count, 0, 0), interrupted=False, checkpoint=None)))
    arena.close()


@dataclass(frozen=True)
class RankTask(Task):
    """And how many steps there are."""

    num_steps: int


def receive(wire, arena, steps):
    """Copies out of the arena as soon as a step is announced, as ranks do."""
    while not isinstance(message := wire.receive(), Leave):
        assert isinstance(message, Deliver)
        steps.put([(part, arena.read(part)) for part in message.parts])
        wire.send(Copied(message.epoch, message.step))
    steps.put(None)


class Gauge:
    """Looks at the memory of every process about once a second."""

    def __init__(self, children):
        """Nothing seen yet."""
        self.pids = {child.name: child.process.pid for child in children}
        self.pids["coordinator"] = os.getpid()
        self.seen = {name: [] for name in self.pids}
        self.pages = []

    def flowed(self, flow):
        """Look."""
        self.pages.append(flow.pages_used)
        for name, pid in self.pids.items():
            self.seen[name].append(process_memory.memory("RssAnon", "RssShmem", pid=pid))


def plan_of(num_batches, seed=0):
    """An epoch of about that many batches over lengths from 16 to 1,024 tokens."""
    mean = 180.0
    count = int(num_batches * MAX_TOKENS / mean * 0.97)
    lengths = np.clip(
        np.random.default_rng(seed).lognormal(np.log(120), 0.9, count), 16, 1024
    ).astype(np.int64)
    config = parse_train_config(
        {
            "output_dir": "unused",
            "target": {"model": "unused"},
            "drafter": {"mask_token_id": 0},
            "data": {"train": ["unused"]},
            "epochs": 1,
            "batching": {"max_tokens": MAX_TOKENS, "max_batch_size": 64},
            "remix": {"pool_batches": 8, "mixed_batches": 4},
            "step": {"anchors_per_step": 1024, "max_anchors": 64},
            "pipeline": {"prefetch_batches": 4},
        }
    )
    anchors = np.minimum(lengths // 2, 64)
    data = TrainingData(None, np.arange(count), lengths, anchors, None)
    return TrainingPlan(data, config)


def measure(quick):
    """Run it; every figure in bytes unless it says otherwise."""
    plan = plan_of(500 if quick else 10_400)
    lengths = plan.data.lengths
    num_pages = pages_needed(plan.epoch(0).mix, lengths, 64, 4)
    shape = ArenaShape(num_pages, 64, WIDTH, torch.bfloat16)
    arena, allocator = Arena(shape), PageAllocator(num_pages, 64)
    task = Task(shape, arena.name)
    crew = LocalCrew(arena)
    crew.workers = [start(produce, task, f"producer {n}", n) for n in range(NUM_WORKERS)]
    rank_task = RankTask(shape, arena.name, plan.num_steps)
    crew.ranks = [start(consume, rank_task, f"consumer {n}", n) for n in range(NUM_RANKS)]
    gauge = Gauge(crew.workers + crew.ranks)
    coordinator = Coordinator(
        Dispatcher(plan, lengths, allocator, num_workers=NUM_WORKERS, num_ranks=NUM_RANKS),
        crew, gauge, timeout_seconds=600, max_bad_samples=0,
    )  # fmt: skip
    began = time.perf_counter()
    try:
        outcome = coordinator.run(lambda: False)
    finally:
        crew.end(at_once=False)
    seconds = time.perf_counter() - began
    assert outcome.position.num_steps == plan.num_steps
    found = report(plan, shape, allocator, gauge, coordinator.flow, seconds)
    check(found)
    return found


def report(plan, shape, allocator, gauge, flow, seconds):
    """What was seen, beside what is allowed."""
    page_bytes = shape.num_bytes // shape.num_pages
    token_bytes = WIDTH * 2
    settled = max(2, int(EARLY_SHARE * len(gauge.pages)))
    largest_step = int(plan.epoch(0).mix.steps.tokens.max()) * token_bytes
    processes = {}
    for name, seen in gauge.seen.items():
        own = [anonymous for anonymous, _ in seen]
        processes[name] = {
            "own_at_start": max(own[:settled]),
            "own_peak": max(own),
            "growth": max(own[settled:]) - max(own[:settled]),
            "shared_peak": max(shared for _, shared in seen),
        }
    return {
        "num_batches": flow.num_batches,
        "num_steps": plan.num_steps,
        "num_samples": int(plan.data.lengths.size),
        "features_through": int(plan.data.num_tokens) * token_bytes,
        "seconds": seconds,
        "bound": shape.num_bytes,
        "peak_pages": allocator.most_used * page_bytes,
        "mean_pages": float(np.mean(gauge.pages)) * page_bytes,
        "pages_left_over": allocator.num_used,
        "largest_batch": MAX_TOKENS * token_bytes,
        "largest_step": largest_step,
        "observations": len(gauge.pages),
        "processes": processes,
    }


def check(found):
    """The promises: never above the bound; no process grows by as much as two steps."""
    assert found["peak_pages"] <= found["bound"]
    assert found["pages_left_over"] == 0
    for name, memory in found["processes"].items():
        assert memory["shared_peak"] <= found["bound"] + (1 << 20), name
        allowed = 2 * found["largest_step"] if "consumer" in name else found["largest_batch"]
        assert memory["growth"] <= allowed, (name, memory)
