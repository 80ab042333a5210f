"""Tiny drafters and updates, in this process or on real processes joined by gloo."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from lengthwise.dflash.anchors import draw_anchors
from lengthwise.dflash.batch import pad_rows
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.metrics import DraftSums
from lengthwise.dflash.optimizer import OptimizerConfig, build_optimizer
from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.target.ends import FrozenEnds
from lengthwise.dflash.update import Update
from support.dflash_loss import sample_of

VOCABULARY, HIDDEN = 50, 16
FEATURES = 2 * HIDDEN
TIMEOUT_SECONDS = 480
"""Long on purpose: it only keeps a broken test from hanging for ever."""

LOSS = LossConfig()
OPTIMIZER = OptimizerConfig(learning_rate=1e-2, eps=1e-3)
"""AdamW's first step is about the gradient's sign; an eps of the gradient's size makes it smooth,
so that rounding of the gradient is not blown up to the learning rate."""


def drafter_of(block_size=8, **overrides):
    """Two layers, the same weights wherever it is made."""
    settings = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 24,
        "vocab_size": VOCABULARY,
        "block_size": block_size,
        "mask_token_id": VOCABULARY - 1,
        "target_layer_ids": (0, 1),
        "num_target_layers": 4,
    }
    return Drafter(DrafterConfig(**{**settings, **overrides}))


def frozen_ends():
    """A random embedding and an untied head with a bias."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(5)
        return FrozenEnds(nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY))


def draft_sample(mask, sample_id):
    """A sample whose features fit the drafter."""
    return sample_of(mask, sample_id, features=FEATURES, vocabulary=VOCABULARY)


def step_of(drafter, batch, *, seed=0, max_anchors=6, loss=LOSS, **how):
    """The sums of one micro-batch."""
    anchors = draw_anchors(batch, max_anchors=max_anchors, seed=seed, epoch=0, **how)
    return draft_step(drafter, frozen_ends(), batch, anchors, loss)


def update_of(drafter, optimizer=OPTIMIZER, **settings):
    """An update with a constant learning rate."""
    schedule = ScheduleConfig("constant", warmup_steps=0)
    built = build_optimizer(drafter, optimizer)
    return Update(drafter, built, schedule, **{"total_steps": 10, **settings})


def take_step(drafter, update, batches):
    """One optimiser step of these micro-batches."""
    for batch in batches:
        update.backward(step_of(drafter, batch), batch.sample_ids)
    return update.step()


def weights(drafter):
    """A copy of all parameters."""
    return {name: value.detach().clone() for name, value in drafter.state_dict().items()}


def plain(sums):
    """Sums as numbers."""
    return {
        name: getattr(sums, name).tolist()
        for name in ("loss_sum", "weight_sum", "correct", "valid", "streak_sum", "num_blocks")
    }


def _work(rank, folder, scenarios):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=len(scenarios[0][1]),
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    found = {}
    for name, steps_by_rank in scenarios:
        drafter = drafter_of()
        update = update_of(drafter, skipped_path=Path(folder) / f"{name}.jsonl", max_skips=2)
        results = []
        for samples in steps_by_rank[rank]:
            batches = [pad_rows(micro) for micro in samples]
            try:
                result = take_step(drafter, update, batches)
            except Exception as error:  # noqa: BLE001  what every rank raises is compared
                results.append({"error": f"{type(error).__name__}: {error}"})
                continue
            with torch.no_grad():
                own = DraftSums.zeros(8)
                for batch in batches:
                    own = own + step_of(drafter, batch)
                evaluated = own.all_reduced()
            results.append(
                {
                    "outcome": result.outcome,
                    "grad_norm": result.grad_norm,
                    "sums": plain(result.sums),
                    "evaluated": plain(evaluated),
                    "weights": weights(drafter),
                }
            )
        found[name] = {"results": results, "state": update.state_dict()}
    torch.save(found, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def on_ranks(folder, scenarios):
    """What each rank found.

    ``scenarios`` are pairs of a name and, for each rank, its optimiser steps: lists of
    micro-batches, each a list of samples.
    """
    scenarios = list(scenarios.items())
    world = len(scenarios[0][1])
    context = mp.spawn(_work, (str(folder), scenarios), nprocs=world, join=False)
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not context.join(timeout=5):
        if time.monotonic() > give_up:
            for process in context.processes:
                process.kill()
            raise TimeoutError(f"the ranks were not done after {TIMEOUT_SECONDS} seconds")
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(world)]
