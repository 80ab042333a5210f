"""Prepared samples as a torch data set: lengths at once, tokens when they are asked for."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset

from lengthwise.dflash.sample_files import open_sample_file
from lengthwise.errors import DataError
from lengthwise.lengths.formats import expand

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.sample_files import Group

CACHE_BYTES = 64 << 20
"""Decoded row groups that a process keeps, about; the latest is kept whatever its size."""


class PreparedSample(TypedDict):
    """One sample.

    Attributes:
        input_ids: tokens, int64 (T,).
        loss_mask: whether the assistant wrote each token, bool (T,).
        sample_id: its place in the data set, which is the same in every epoch and process.
    """

    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    sample_id: int


class PreparedDataset(Dataset[PreparedSample]):
    """Samples of Parquet files with ``input_ids`` and ``loss_mask``.

    Reads what ``lengthwise dflash prepare`` writes, and any other Parquet file with these two
    list columns, as ``speculators`` has them. Opening reads footers and the column of lengths (or
    the list structure where there is no ``seq_len``), never a token. A sample is decoded together
    with its row group; the latest groups are kept, so reading in order decodes each once.
    Pickles as its paths and lengths, for workers of a DataLoader.
    """

    def __init__(
        self, source: str | Path | Sequence[str | Path], *, vocab_size: int | None = None
    ) -> None:
        """Open and check the files.

        Args:
            source: a directory, a file, or several files in order.
            vocab_size: tokens the target knows; with it every file's largest id is checked, from
                the file's own statistics where it has them.

        Raises:
            DataError: no files, a column missing or of another type, ``seq_len`` unlike the
                number of tokens, or an id outside the vocabulary; names file and row.

        Warns:
            LengthwiseWarning: a file's row groups are too large to be read at random.
        """
        named = [source] if isinstance(source, (str, os.PathLike)) else source
        names = [os.fspath(one) for one in named]
        self.files = [open_sample_file(path) for path in expand(names)]
        self.lengths: Int64Array = np.concatenate([file.lengths for file in self.files])
        """Tokens of every sample, int64 (num_samples,)."""
        self._first = np.cumsum([0, *(len(file.lengths) for file in self.files)])
        self._groups: OrderedDict[tuple[int, int], Group] = OrderedDict()
        if vocab_size is not None:
            for file in self.files:
                file.check_vocabulary(vocab_size)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> PreparedSample:
        """The sample at ``index``; negative ones count from the end.

        Raises:
            IndexError: there is no such sample.
            DataError: its columns have different lengths, or a value is null; names file and row.
        """
        number, row = self.place_of(index)
        place = int(self._first[number]) + row
        file = self.files[number]
        group = self._group(number, file.group_of(row))
        ids, mask = group.sample(row)
        if len(ids) != self.lengths[place]:
            raise DataError(
                f"{file.path}, row {row:,} (counting from 0): seq_len is {self.lengths[place]:,} "
                f"and input_ids has {len(ids):,} tokens; they must be equal"
            )
        return {
            "input_ids": torch.from_numpy(ids),
            "loss_mask": torch.from_numpy(mask),
            "sample_id": place,
        }

    def place_of(self, index: int) -> tuple[int, int]:
        """Where a sample stands: the number of its file, and its row there, both from 0.

        Negative indices count from the end.

        Raises:
            IndexError: there is no such sample.
        """
        place = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= place < len(self):
            raise IndexError(f"sample {index} of {len(self):,}")
        number = int(np.searchsorted(self._first, place, side="right")) - 1
        return number, place - int(self._first[number])

    def _group(self, number: int, index: int) -> Group:
        key = (number, index)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self.files[number].read_group(index)
            while len(self._groups) > 1 and self._cached_bytes() > CACHE_BYTES:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        return group

    def _cached_bytes(self) -> int:
        return sum(group.num_bytes for group in self._groups.values())

    def warm_up(self) -> None:
        """Read a sample, so that the first one that is asked for comes as soon as the others.

        What reading needs is imported then; that is more than it seems, since pyarrow imports
        pandas with the first array that it makes one of NumPy's of.
        """
        if len(self):
            with suppress(DataError):  # whoever asks for this sample is told
                self[0]

    @cached_property
    def num_tokens(self) -> int:
        """Tokens of all samples."""
        return int(self.lengths.sum())

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the decoded groups."""
        return {**self.__dict__, "_groups": OrderedDict()}
