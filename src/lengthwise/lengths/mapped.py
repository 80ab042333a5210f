"""Lengths that need not be read to be planned: arrays on disk, memory-mapped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.lengths.manifest import is_shards
from lengthwise.lengths.shards import open_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lengthwise.lengths.result import ScanResult


def map_lengths(source: Sequence[str | Path]) -> list[npt.NDArray[Any]] | None:
    """Arrays of lengths, memory-mapped, of a source that is nothing else.

    Args:
        source: paths: one directory of shards, or ``.npy`` files of whole numbers, each a shard.

    Returns:
        An array a shard; None where the source has to be read.

    Raises:
        DataError: shards that are not what their manifest says.
    """
    if len(source) == 1 and isinstance(source[0], Path) and source[0].is_dir():
        return list(open_shards(source[0], verify=True)) if is_shards(source[0]) else None
    found = []
    for path in source:
        if not isinstance(path, Path) or path.suffix != ".npy" or not path.is_file():
            return None
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            return None  # the reader says what is wrong with it
        if array.ndim != 1 or array.dtype.kind not in "iu":
            return None
        found.append(array)
    return found or None


def shard_sizes(scan: ScanResult) -> list[int] | None:
    """Samples that each file of a scan gave, in order; None where there are no files."""
    if not scan.files:
        return None
    edges = np.cumsum([0, *(file.num_rows for file in scan.files)])
    if scan.row_index is not None:
        edges = np.searchsorted(scan.row_index, edges)
    return [size for size in np.diff(edges).tolist() if size]
