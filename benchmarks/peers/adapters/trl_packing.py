"""TRL's packing of a data set, best fit decreasing, as SFTConfig(packing=True) does it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, disable_progress_bars
from trl.data_utils import pack_dataset

from peers.case import About, Epochs

disable_progress_bars()


def about():
    """What it promises."""
    return About(
        package="trl",
        settings='packing_strategy="bfd", map batches of 1,000 samples, rows as long as the '
        "budget; rows shuffled every epoch",
        source="trl/data_utils.py, pack_dataset; SFTConfig",
        dealing="Accelerate repeats the epoch's first rows until the replicas are even",
        packed=True,
    )


def prepare(lengths):
    """A table of token lists; every token is its sample's number, so that rows can be read."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    column = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens))
    return Dataset(pa.table({"input_ids": column}))


def make(dataset, case, _replica):
    """Rows packed once, in a random order every epoch."""
    options = {"load_from_cache_file": False, "keep_in_memory": True}
    packed = pack_dataset(dataset, case.max_tokens, "bfd", map_kwargs=options)

    def batches(epoch):
        generator = torch.Generator().manual_seed(case.seed + epoch)
        table = packed.with_format("numpy")
        for row in torch.randperm(len(packed), generator=generator).tolist():
            sizes = table[row]["seq_lengths"]
            yield table[row]["input_ids"][np.cumsum(sizes) - sizes].tolist()

    return Epochs(batches)
