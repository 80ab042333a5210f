"""The real dispatcher and page allocator, with a clock of their own instead of processes."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from lengthwise.dflash.training.config import parse_train_config
from lengthwise.dflash.training.data import TrainingData
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.messages import Arrived, RunBatch
from lengthwise.pipeline.pages import PageAllocator

PAGE_TOKENS = 16


def plan_of(count, seed=0, *, max_tokens=2_048, pool_batches=4):
    """One epoch's plan over random lengths; every sample has anchors to learn from."""
    config = parse_train_config(
        {
            "output_dir": "unused",
            "target": {"model": "unused"},
            "drafter": {"mask_token_id": 0},
            "data": {"train": ["unused"]},
            "epochs": 1,
            "seed": seed,
            "batching": {"max_tokens": max_tokens, "max_batch_size": 32},
            "remix": {"pool_batches": pool_batches, "mixed_batches": 2},
            "step": {"anchors_per_step": 512, "max_anchors": 64},
        }
    )
    lengths = np.random.default_rng(seed).integers(16, 512, count)
    anchors = np.minimum(lengths // 2, 64)
    return TrainingPlan(TrainingData(None, np.arange(count), lengths, anchors, None), config)


class DispatchedPipeline:
    """Workers and ranks that take the seconds of a workload, driven by the real dispatcher."""

    def __init__(self, plan, workload, num_pages, *, num_workers, num_ranks):
        self.pages = PageAllocator(num_pages, PAGE_TOKENS)
        self.dispatcher = Dispatcher(
            plan, plan.data.lengths, self.pages, num_workers=num_workers, num_ranks=num_ranks
        )
        self.work, self.num_ranks = workload, num_ranks
        self.now, self.events, self.count = 0.0, [], 0
        self.free = {}
        self.arrived = np.zeros(workload.num_arrivals)
        self.learnt = np.zeros(workload.num_steps)

    def run(self):
        """Until all is learnt; this pipeline with its times."""
        self._send()
        while self.events:
            self.now, _, handle = heapq.heappop(self.events)
            handle()
            self._send()
        assert self.dispatcher.finished
        return self

    def _send(self):
        for number, message in self.dispatcher.work():
            if isinstance(message, RunBatch):
                seconds = self.work.arrival_seconds[message.arrival]
                self._after(("worker", number), seconds, self._arrive, message)
            else:
                self._at(self.now, self.dispatcher.copied, number, message.epoch, message.step)
                seconds = self.work.step_seconds[message.step]
                self._after(("rank", number), seconds, self._learn, number, message.step)

    def _after(self, who, seconds, *action):
        """When whoever does it is free, and has worked for so long."""
        self.free[who] = max(self.free.get(who, 0.0), self.now) + float(seconds)
        self._at(self.free[who], *action)

    def _at(self, time, action, *arguments):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, lambda: action(*arguments)))

    def _arrive(self, batch):
        self.arrived[batch.arrival] = self.now
        tokens = sum(part.num_tokens for part in batch.parts)
        message = Arrived(batch.epoch, batch.arrival, {}, tokens, tokens, 0.0, 0.0)
        self.dispatcher.arrived(message)

    def _learn(self, rank, step):
        self.learnt[step] = self.now
        self.dispatcher.learnt(rank)


def with_random_seconds(workload, seed, ratio):
    """The same work with continuous random times, so that no two things happen at one moment."""
    rng = np.random.default_rng(seed)
    return replace(
        workload,
        arrival_seconds=rng.uniform(0.5, 2.0, workload.num_arrivals),
        step_seconds=rng.uniform(0.5, 2.0, workload.num_steps) * ratio,
    )
