"""Token-weighted losses on real processes: what each of two gloo ranks does, and its launcher."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from lengthwise.loader.loss import TokenWeightedLoss

if TYPE_CHECKING:
    from pathlib import Path

IGNORE = -100
VOCABULARY = 11
TIMEOUT_SECONDS = 480
"""Long on purpose: it only keeps a broken test from hanging for ever."""

Batch = tuple[torch.Tensor, torch.Tensor]
"""Token ids and labels, both (samples, length)."""


def tiny_model() -> torch.nn.Module:
    """A bigram model, the same weights wherever it is made; float64, to compare to 1e-12."""
    torch.manual_seed(0)
    layers = (torch.nn.Embedding(VOCABULARY, 6), torch.nn.Linear(6, VOCABULARY))
    return torch.nn.Sequential(*layers).double()


def batch_of(rows: list[list[int]], masked: tuple[int, ...] = ()) -> Batch:
    """Rows padded with 0, their labels masked there and in the rows named."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    labels = torch.tensor([row + [IGNORE] * (width - len(row)) for row in rows])
    for row in masked:
        labels[row] = IGNORE
    return ids, labels


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    """A copy of every parameter's gradient."""
    return [parameter.grad.clone() for parameter in model.parameters()]


def run_before(model: torch.nn.Module, batches: list[Batch], loss: TokenWeightedLoss) -> Any:
    """One optimiser step that counts its tokens first."""
    model.zero_grad()
    loss.begin_step(labels for _, labels in batches)
    for ids, labels in batches:
        loss(model(ids), labels).backward()
    return loss.end_step()


def run_after(model: torch.nn.Module, batches: list[Batch], loss: TokenWeightedLoss) -> Any:
    """One optimiser step that scales its gradients afterwards."""
    model.zero_grad()
    for ids, labels in batches:
        loss(model(ids), labels).backward()
    return loss.rescale_gradients(model.parameters())


def _work(rank: int, folder: str, per_rank: dict[str, list[list[Batch]]]) -> None:
    torch.set_num_threads(1)
    world = len(next(iter(per_rank.values())))
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    model = DistributedDataParallel(tiny_model())
    found = {}
    for name, batches in per_rank.items():
        for count, run in (("before", run_before), ("after", run_after)):
            loss = TokenWeightedLoss(shift=True, count=count)
            step = run(model, batches[rank], loss)
            found[name, count] = {
                "gradients": gradients(model.module),
                "mean": float(step),
                "num_tokens": int(step.num_tokens),
                "num_empty_batches": int(step.num_empty_batches),
                "own_empty_batches": loss.num_empty_batches,
            }
    torch.save(found, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def on_ranks(folder: Path, per_rank: dict[str, list[list[Batch]]]) -> list[dict[Any, Any]]:
    """What each rank found; ``per_rank[name][rank]`` are the micro-batches of one step."""
    world = len(next(iter(per_rank.values())))
    context = mp.spawn(_work, (str(folder), per_rank), nprocs=world, join=False)
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not context.join(timeout=5):
        if time.monotonic() > give_up:
            for process in context.processes:
                process.kill()
            raise TimeoutError(f"the ranks were not done after {TIMEOUT_SECONDS} seconds")
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(world)]
