"""ESPnet's ``batch_type: numel`` with its iterator factory, as its recipes set it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from espnet2.iterators.sequence_iter_factory import SequenceIterFactory
from espnet2.samplers.num_elements_batch_sampler import NumElementsBatchSampler

from peers.case import About, Epochs


def about():
    """What it promises."""
    return About(
        package="espnet",
        settings="batch_type=numel, sort_in_batch and sort_batch descending, batches shuffled "
        "every epoch; with W replicas W times the budget, and every batch is split into W",
        source="espnet2/tasks/abs_task.py; egs2/librispeech/asr1/conf",
    )


def prepare(lengths):
    """A shape file: a line a sample."""
    with tempfile.NamedTemporaryFile("w", suffix="_shape", delete=False) as file:
        file.writelines(f"{index} {length}\n" for index, length in enumerate(lengths.tolist()))
    return file.name


def make(shapes, case, replica):
    """One replica's batches."""
    if not Path(shapes).exists():
        raise FileNotFoundError(shapes)
    whole = NumElementsBatchSampler(
        batch_bins=case.max_tokens * replica.num_replicas,
        shape_files=[shapes],
        min_batch_size=replica.num_replicas,
        sort_in_batch="descending",
        sort_batch="descending",
    )
    mine = [batch[replica.rank :: replica.num_replicas] for batch in whole]
    factory = SequenceIterFactory(None, mine, seed=case.seed, shuffle=True)

    def batches(epoch):
        # ESPnet counts epochs from 1.
        loader = factory.build_iter(epoch + 1)
        return ([int(key) for key in batch] for batch in loader.batch_sampler)

    return Epochs(batches)
