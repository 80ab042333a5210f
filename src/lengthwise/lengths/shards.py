"""Lengths on disk in shards: arrays that are memory-mapped, and a manifest that vouches for them.

A directory of shards holds

``lengths-00000.npy`` ...
    The lengths of the rows that were kept, in source order, a NumPy file a shard. All are of one
    dtype, the smallest of uint16 and uint32 that holds the longest length: a billion samples of
    up to 65,535 tokens are 2 GB to map.
``bad-00003.npy``
    Where shard 3 has rows without a usable length: their places among its rows, from 0; int64.
``manifest.json``
    One JSON object, ``"format": "lengthwise.lengths", "version": 1``: ``dtype``, ``num_samples``,
    ``num_rows``, ``fingerprint`` (:func:`~lengthwise.core.fingerprint.lengths_fingerprint` of all
    lengths), ``histogram`` (``lengths`` and ``counts``), ``column``, ``on_bad``, ``tokenizer`` (a
    hash, or null), ``rows_per_shard``, ``source`` (a hash of the files' names) and ``shards``, in
    order. Each of these has ``file``,
    ``num_samples``, ``num_bad``, ``fingerprint``, ``first_bad`` (file, row, reason, unit),
    ``key`` (a hash of what it was made from) and ``spans``: its source files in order, with the
    first row and the number of rows of each. It is written last, so that a directory with a
    manifest is complete.
``unfinished.jsonl``
    In place of the manifest while a scan is not done: an object a line for each finished shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lengthwise.core.fingerprint import lengths_fingerprint
from lengthwise.core.stored import StoredLengths, spans
from lengthwise.errors import DataError
from lengthwise.lengths.manifest import MANIFEST, Manifest, Shard, read_manifest
from lengthwise.lengths.rows import Part, Piece

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import Int64Array
    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.formats import ReadOptions

    Lengths = npt.NDArray[np.unsignedinteger[Any]]

NUM_NAMED = 5
"""Wrong shards that an error names; the others are counted."""


def open_shards(directory: str | os.PathLike[str], *, verify: bool = False) -> LengthShards:
    """The lengths of a directory of shards; nothing but headers is read.

    Args:
        directory: what ``lengthwise scan --output DIR`` wrote.
        verify: read all shards and compare their fingerprints with the manifest's.

    Raises:
        DataError: no such directory, an unfinished scan, a manifest that cannot be read, or shards
            that are missing or not as the manifest says; names them.
    """
    folder = Path(directory)
    shards = LengthShards(folder, read_manifest(folder))
    faults = [(shard, _fault(folder, shard, shards.dtype)) for shard in shards.manifest.shards]
    _refuse(folder, shards, faults)
    if verify:
        faults = [
            (shard, None if lengths_fingerprint(lengths) == shard.fingerprint else CHANGED)
            for shard, lengths in zip(shards.manifest.shards, shards, strict=True)
        ]
        _refuse(folder, shards, faults)
    return shards


CHANGED = "its lengths are others"


def _refuse(folder: Path, shards: LengthShards, faults: list[tuple[Shard, str | None]]) -> None:
    wrong = [f"{shard.file} ({fault})" for shard, fault in faults if fault is not None]
    if wrong:
        more = f" and {len(wrong) - NUM_NAMED:,} more" if len(wrong) > NUM_NAMED else ""
        raise DataError(
            f"{folder}: {len(wrong):,} of {len(shards.paths):,} shards are not what "
            f"{MANIFEST} says: {', '.join(wrong[:NUM_NAMED])}{more}. Run the scan again with the "
            f"same --output: what is right is kept"
        )


def _fault(folder: Path, shard: Shard, dtype: np.dtype[Any]) -> str | None:
    """What is wrong with a shard's file, judged by its header and size."""
    path = folder / shard.file
    if not path.is_file():
        return "missing"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return "no array, or cut off"
    if array.dtype != dtype or array.ndim != 1:
        return f"{array.dtype} of shape {array.shape}"
    if array.size != shard.num_samples:
        return f"{array.size:,} lengths, not {shard.num_samples:,}"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class LengthShards:
    """Lengths in memory-mapped shards, in source order; made by :func:`open_shards`.

    Nothing is held but the manifest: iterate over the shards, or :meth:`read` a range.

    Attributes:
        directory: where they are.
        manifest: what they hold.
    """

    directory: Path
    manifest: Manifest

    @property
    def paths(self) -> list[Path]:
        """The files of the shards, in order."""
        return [self.directory / shard.file for shard in self.manifest.shards]

    @property
    def offsets(self) -> Int64Array:
        """Where each shard begins among all samples, and their number last; shape (S + 1,)."""
        sizes = (shard.num_samples for shard in self.manifest.shards)
        return np.array([*accumulate(sizes, initial=0)], np.int64)

    @property
    def num_samples(self) -> int:
        """Samples of all shards."""
        return self.manifest.num_samples

    @property
    def size(self) -> int:
        """As ``num_samples``; as an array has it."""
        return self.num_samples

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of every shard: uint16 or uint32."""
        return np.dtype(self.manifest.dtype)

    @property
    def histogram(self) -> LengthHistogram:
        """All lengths, counted."""
        return self.manifest.histogram

    @property
    def fingerprint(self) -> str:
        """Of all lengths in order, as of one array."""
        return self.manifest.fingerprint

    def __len__(self) -> int:
        """Samples of all shards."""
        return self.num_samples

    def __iter__(self) -> Iterator[Lengths]:
        """The shards in order, memory-mapped and read-only."""
        return (np.load(path, mmap_mode="r", allow_pickle=False) for path in self.paths)

    def read(self, start: int, stop: int) -> Lengths:
        """The lengths of samples ``start`` to ``stop - 1``.

        Returns:
            An array of ``dtype``, shape (stop - start,); a view of the map where one shard holds
            them all.
        """
        paths = self.paths
        parts: list[Lengths] = [
            np.load(paths[shard], mmap_mode="r", allow_pickle=False)[own]
            for shard, own in spans(self.offsets, max(0, start), stop)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice | npt.NDArray[Any] | list[int]) -> Int64Array: ...

    def __getitem__(self, key: Any) -> Any:
        """As an int64 array has it: a number, a range, or those at an array of indices."""
        return StoredLengths.of(self)[key]

    def source_rows(self, samples: Int64Array) -> Int64Array:
        """The rows of some samples in the source, bad rows counted, from 0.

        Args:
            samples: numbers of samples, int64, shape (n,).

        Returns:
            int64, shape (n,).
        """
        shards = self.manifest.shards
        if not any(shard.num_bad for shard in shards):
            return samples
        rows = np.empty_like(samples)
        first_rows = [*accumulate((shard.num_rows for shard in shards), initial=0)]
        numbers = np.searchsorted(self.offsets, samples, side="right") - 1
        for number in np.unique(numbers).tolist():
            kept = np.arange(first_rows[number], first_rows[number + 1])
            if shards[number].num_bad:
                bad_file = self.directory / shards[number].bad_file
                kept = np.delete(kept, np.load(bad_file, allow_pickle=False))
            here = numbers == number
            rows[here] = kept[samples[here] - self.offsets[number]]
        return rows


def fields(path: str) -> None:
    """Shards have no columns."""


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:  # noqa: ARG001
    """One part a shard; what is read is compared with the manifest."""
    shards = open_shards(path)
    return [_part(shards, number) for number in range(len(shards.paths))]


def _part(shards: LengthShards, number: int) -> Part:
    shard, path = shards.manifest.shards[number], shards.paths[number]

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        lengths = np.load(path, allow_pickle=False)
        if lengths_fingerprint(lengths) != shard.fingerprint:
            _refuse(shards.directory, shards, [(shard, CHANGED)])
        yield Piece(lengths.astype(np.int64))
        report(shard.num_samples)

    return Part(str(path), shard.num_samples, "rows", read)
