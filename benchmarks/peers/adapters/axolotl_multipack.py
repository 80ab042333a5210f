"""Axolotl's MultipackBatchSampler, as its trainer makes it."""

from __future__ import annotations

import torch
from torch.utils.data import RandomSampler

from peers.case import About, Epochs, skip_package_code

skip_package_code("axolotl", "axolotl.utils", "axolotl.utils.samplers")
from axolotl.utils.samplers.multipack import MultipackBatchSampler  # noqa: E402 - see above


def about():
    """What it promises."""
    return About(
        package="axolotl",
        settings="group_size=100,000, drop_last=True, one row a batch as long as the budget; "
        "num_processes=1, bin_size the limit of samples",
        source="axolotl/core/trainers/base.py, AxolotlTrainer._create_multipack_sampler",
        dealing="Accelerate; the sampler cuts its list to the fewest batches of any replica",
        packed=True,
    )


def prepare(lengths):
    """Lengths as an array."""
    return lengths


def make(lengths, case, _replica):
    """Rows as lists of samples."""

    def batches(epoch):
        generator = torch.Generator().manual_seed(case.seed + epoch)
        sampler = MultipackBatchSampler(
            RandomSampler(range(len(lengths)), generator=generator),
            batch_size=1,
            batch_max_len=case.max_tokens,
            lengths=lengths,
            bin_size=case.max_batch_size,
            group_size=100_000,
            num_processes=1,
            drop_last=True,
        )
        return (batch[0] for batch in sampler)

    return Epochs(batches)
