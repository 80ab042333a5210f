"""PyTorch's DataLoader as it comes: shuffled, batches of one size."""

from __future__ import annotations

import torch
from torch.utils.data import BatchSampler, RandomSampler

from peers.case import About, Epochs


def about(size):
    """What it promises."""
    return About(
        package="torch",
        settings=f"shuffle=True, batch_size the {size} size",
        source="PyTorch's documentation of torch.utils.data",
        dealing="DistributedSampler repeats samples until the replicas are even",
    )


def prepare(lengths):
    """It never looks at lengths."""
    return range(len(lengths))


def make(samples, case, _replica, size):
    """Batches of random samples."""

    def batches(epoch):
        generator = torch.Generator().manual_seed(case.seed + epoch)
        order = RandomSampler(samples, generator=generator)
        return BatchSampler(order, getattr(case, f"{size}_size"), drop_last=False)

    return Epochs(batches)
