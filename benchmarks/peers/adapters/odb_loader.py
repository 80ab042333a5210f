"""ODB: the samples that DataLoader workers have prefetched, grouped by length as they come."""

from __future__ import annotations

import odb
import torch

from peers.case import About, Epochs


class Samples(list):
    """From lengths to each sample's tokens; all are its number, so that batches can be read."""

    def __getitem__(self, index):
        """Tokens of one sample."""
        return {"input_ids": torch.full((super().__getitem__(index),), index)}


def numbers(samples):
    """Collate to the samples' numbers."""
    return {"input_ids": torch.stack([sample["input_ids"][0] for sample in samples])[:, None]}


def about():
    """What it promises."""
    return About(
        package="online-dynamic-batching",
        settings="num_workers=4, prefetch_factor=64: a window of 256 samples; no limit on samples",
        source="the package's README",
        dealing="one process here; its own protocol aligns replicas, which was not run",
        most_samples=5_000,
    )


def prepare(lengths):
    """A data set that makes a sample's tokens when it is read."""
    return Samples(lengths.tolist())


def make(samples, case, _replica):
    """A loader whose epoch's order is seeded."""

    def batches(epoch):
        loader = odb.ODBDataLoader(
            samples,
            token_budget=case.max_tokens,
            batch_size=1,
            shuffle=True,
            num_workers=4,
            prefetch_factor=64,
            collate_fn=numbers,
            generator=torch.Generator().manual_seed(case.seed + epoch),
        )
        for batch in loader:
            yield batch["input_ids"].flatten().tolist()

    return Epochs(batches)
