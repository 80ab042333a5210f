"""Hugging Face Trainer's ``train_sampling_strategy="group_by_length"``."""

from __future__ import annotations

import torch
from torch.utils.data import BatchSampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from peers.case import About, Epochs


def about(size):
    """What it promises."""
    return About(
        package="transformers",
        settings=f"batch_size the {size} size; megabatches of 50 batches, as built in",
        source="transformers/trainer_pt_utils.py, get_length_grouped_indices",
        dealing="Accelerate repeats the epoch's first batches until the replicas are even",
    )


def prepare(lengths):
    """Lengths as a list, as its authors say: a tensor is slow."""
    return lengths.tolist()


def make(lengths, case, replica, size):
    """The sampler in PyTorch's BatchSampler, as the Trainer's loader has it."""

    def batches(epoch):
        generator = torch.Generator().manual_seed(case.seed + epoch)
        batch_size = getattr(case, f"{size}_size")
        # The Trainer gives it the samples of a replica's whole step.
        group = batch_size * replica.accumulation
        order = LengthGroupedSampler(group, lengths=lengths, generator=generator)
        return BatchSampler(order, batch_size, drop_last=False)

    return Epochs(batches)
