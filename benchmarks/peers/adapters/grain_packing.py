"""Grain's first-fit packing of a shuffled data set."""

from __future__ import annotations

import grain
import numpy as np
from grain.experimental import FirstFitPackIterDataset

from peers.case import About


class Rows:
    """Its iterators with the epoch, which is ours to keep."""

    def __init__(self, dataset_of):
        """Begin at epoch 0."""
        self.dataset_of, self.epoch, self.state = dataset_of, 0, None

    def set_epoch(self, epoch):
        """Choose the epoch."""
        self.epoch = epoch

    def __iter__(self):
        """Rows as the samples' numbers."""
        self.iterator = iter(self.dataset_of(self.epoch))
        if self.state is not None:
            self.iterator.set_state(self.state)
        for row in self.iterator:
            first = (row["tokens_positions"] == 0) & (row["tokens_segment_ids"] > 0)
            yield row["tokens"][first].tolist()

    def state_dict(self):
        """The iterator's own state."""
        return {"epoch": self.epoch, "iterator": self.iterator.get_state()}

    def load_state_dict(self, state):
        """Go to where it stands."""
        self.epoch, self.state = state["epoch"], state["iterator"]


def about():
    """What it promises."""
    return About(
        package="grain",
        settings="FirstFitPackIterDataset over 64 open rows, shuffle_bins=True",
        source="Grain's documentation on packing; no number of rows is recommended there",
        resume="state",
        packed=True,
        most_samples=5_000,
    )


def prepare(lengths):
    """Lengths; an element is made when it is read, of its sample's number a token."""
    return lengths


def make(lengths, case, replica):
    """One replica's rows: every W-th sample of the shuffled order is its own."""

    def dataset_of(epoch):
        samples = grain.MapDataset.source(range(len(lengths))).shuffle(seed=case.seed + epoch)
        samples = samples[replica.rank :: replica.num_replicas]
        elements = samples.map(lambda i: {"tokens": np.full(lengths[i], i, np.int32)})
        return FirstFitPackIterDataset(
            elements.to_iter_dataset(),
            length_struct={"tokens": case.max_tokens},
            num_packing_bins=64,
            max_sequences_per_bin=case.max_batch_size,
        )

    return Rows(dataset_of)
