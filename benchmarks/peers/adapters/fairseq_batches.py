"""fairseq's batch_by_size, with the order and the epochs that its tasks and iterators give it."""

from __future__ import annotations

import numpy as np

from peers.case import About, Epochs, skip_package_code

skip_package_code("fairseq", "fairseq.data")
from fairseq.data.data_utils import batch_by_size  # noqa: E402 - after its __init__ is skipped


def about():
    """What it promises."""
    return About(
        package="fairseq",
        settings="required_batch_size_multiple=8, the default; samples sorted by length once, "
        "batches permuted every epoch",
        source="fairseq/dataclass/configs.py, DatasetConfig; LanguagePairDataset.ordered_indices",
        dealing="ShardedIterator gives replicas without a batch an empty one",
    )


def prepare(lengths):
    """Lengths as an array."""
    return lengths


def make(lengths, case, _replica):
    """Batches frozen, their order a permutation seeded by the epoch, as EpochBatchIterator's."""
    shuffled = np.random.RandomState(case.seed).permutation(lengths.size)
    order = shuffled[np.argsort(lengths[shuffled], kind="mergesort")]
    batches = batch_by_size(
        order,
        lambda index: lengths[index],
        num_tokens_vec=lengths[order],
        max_tokens=case.max_tokens,
        max_sentences=case.max_batch_size,
        required_batch_size_multiple=8,
    )

    def epoch_batches(epoch):
        order = np.random.RandomState(case.seed + epoch).permutation(len(batches))
        return (batches[place] for place in order)

    return Epochs(epoch_batches)
