"""Lengths where they lie: one array or several shards, memory-mapped or not, of any integer type.

Nothing here holds a copy of all lengths. What is read is int64, a part at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lengthwise.core.histogram import LengthHistogram, check_lengths
from lengthwise.core.threads import run_all
from lengthwise.errors import BadLengthError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

PART = 1 << 18
"""Samples that are read at once: what they take in int64 is 2 MiB."""
_LONGEST = 2**53


@dataclass(frozen=True, slots=True, eq=False)
class StoredLengths:
    """Lengths of all samples, of one array or of several in a row.

    Indexing gives int64, whatever the arrays hold. ``numpy.asarray`` makes one int64 array of all,
    8 bytes a sample.

    Attributes:
        shards: one-dimensional arrays of integers, in order; views of what was given.
        edges: samples before each shard, and all of them at the end; int64, shape (K + 1,).
        most: what longer samples count as; None: as they are.
        in_shards: whether they were given as shards, be it one, and not as an array of all.
    """

    shards: tuple[npt.NDArray[Any], ...]
    edges: Int64Array
    most: int | None = None
    in_shards: bool = False

    @classmethod
    def of(cls, lengths: npt.ArrayLike | Iterable[npt.NDArray[Any]]) -> StoredLengths:
        """Wrap lengths; arrays of integers are not copied.

        Args:
            lengths: integers (or whole numbers), shape (N,), in one array or in several, which
                then are the data set's shards in order.

        Raises:
            BadLengthError: not one-dimensional, or of no numbers. Whether values are lengths is
                found out by :func:`count_lengths`, except for floating-point numbers.
        """
        if isinstance(lengths, cls):
            return lengths
        parts, in_shards = _shards_of(lengths)
        arrays = [np.asarray(part) for part in parts]
        whole = [
            array if array.ndim == 1 and array.dtype.kind in "iu" else check_lengths(array)
            for array in arrays
        ]
        sizes = [array.size for array in whole]
        edges = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        return cls(tuple(whole), edges, in_shards=in_shards)

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self.edges[-1])

    @property
    def shard_sizes(self) -> Int64Array:
        """Samples of each shard; int64, shape (K,)."""
        return np.diff(self.edges)

    @property
    def array(self) -> npt.NDArray[Any] | None:
        """The one array that holds all lengths as they count, of any integer type; else None."""
        return self.shards[0] if len(self.shards) == 1 and self.most is None else None

    def at_most(self, most: int) -> StoredLengths:
        """The same lengths, of which longer ones count as ``most``."""
        return replace(self, most=most)

    def read(self, start: int, stop: int) -> Int64Array:
        """The lengths of samples ``start .. stop - 1``; int64, perhaps a view."""
        found = [
            self.shards[shard][own].astype(np.int64, copy=False)
            for shard, own in spans(self.edges, start, stop)
        ]
        nothing = np.empty(0, np.int64)
        part: Int64Array = found[0] if len(found) == 1 else np.concatenate([nothing, *found])
        return part if self.most is None else np.minimum(part, self.most)

    def take(self, samples: npt.NDArray[Any]) -> Int64Array:
        """The lengths of the samples at these indices; int64, same shape."""
        flat = samples.reshape(-1)
        if len(self.shards) == 1:
            part: Int64Array = self.shards[0][flat].astype(np.int64, copy=False)
        else:
            part = np.empty(flat.size, np.int64)
            shard_of = np.searchsorted(self.edges, flat, side="right") - 1
            for shard in np.unique(shard_of):
                here = shard_of == shard
                part[here] = self.shards[shard][flat[here] - self.edges[shard]]
        if self.most is not None:
            part = np.minimum(part, self.most)
        return part.reshape(samples.shape)

    def parts(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Int64Array]]:
        """Samples in order, some 100,000 at once, each part with its first index."""
        end = self.size if stop is None else stop
        for first in range(start, end, PART):
            yield first, self.read(first, min(first + PART, end))

    def __len__(self) -> int:
        """Number of samples."""
        return self.size

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice | npt.NDArray[Any] | list[int]) -> Int64Array: ...

    def __getitem__(self, key: Any) -> Any:
        """As an int64 array: a number, a range, or those at an array of indices."""
        if isinstance(key, slice):
            start, stop, step = key.indices(self.size)
            return self.read(start, stop) if step == 1 else self.take(np.arange(start, stop, step))
        places = np.asarray(key)
        if places.dtype == np.bool_:
            places = np.flatnonzero(places)
        if places.size and not -self.size <= int(places.min()) <= int(places.max()) < self.size:
            raise IndexError(f"a sample outside of {self.size:,} was asked for")
        found = self.take(np.where(places < 0, places + self.size, places))
        return int(found) if found.ndim == 0 else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All lengths as one array, int64 unless asked otherwise."""
        del copy  # a view is given only by `read`, never here
        return np.array(self.read(0, self.size), dtype or np.int64)


def spans(edges: Int64Array, start: int, stop: int) -> Iterator[tuple[int, slice]]:
    """The shards that hold samples ``start .. stop - 1``, each with its own part of them.

    Args:
        edges: samples before each shard, and all of them; shape (K + 1,).
        start: from 0.
        stop: what is beyond the last sample counts nothing.
    """
    stop = min(stop, int(edges[-1]))
    shard = int(np.searchsorted(edges, start, side="right")) - 1
    while start < stop:
        base, end = int(edges[shard]), min(stop, int(edges[shard + 1]))
        if start < end:
            yield shard, slice(start - base, end - base)
        start, shard = end, shard + 1


def _shards_of(lengths: Any) -> tuple[list[Any], bool]:
    """Arrays in a row, and whether they are shards; else what makes one array."""
    whole = isinstance(lengths, np.ndarray) or not isinstance(lengths, Iterable)
    if whole or (hasattr(lengths, "__array__") and not isinstance(lengths, (list, tuple))):
        return [lengths], False
    parts = list(lengths)
    if parts and all(isinstance(part, np.ndarray) and part.ndim for part in parts):
        return parts, True
    return [parts], False


def checked_shard_sizes(sizes: npt.ArrayLike | None, lengths: StoredLengths) -> Int64Array:
    """Samples of each shard of the data set; by default those that the lengths lie in.

    Raises:
        ConfigError: they do not add up to the number of samples, or a shard has none.
    """
    if sizes is None:
        found = lengths.shard_sizes
        return found[found > 0]
    array = np.asarray(sizes)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size:
        raise ConfigError("shard_sizes must be one row of whole numbers, the samples of each shard")
    if int(array.min()) < 1 or int(array.sum()) != lengths.size:
        raise ConfigError(
            f"shard_sizes must each be at least 1 and add up to the {lengths.size:,} samples; the "
            f"least is {int(array.min()):,}, the sum {int(array.sum()):,}"
        )
    return array.astype(np.int64)


def count_lengths(lengths: StoredLengths, num_threads: int = 1) -> LengthHistogram:
    """Check and count all lengths, a part at a time.

    Raises:
        BadLengthError: a length is not a whole number from 1 to 2**53; names the first.
    """

    def count(start: int) -> LengthHistogram | None:
        part = lengths.read(start, start + PART)
        good = not part.size or (int(part.min()) >= 1 and int(part.max()) <= _LONGEST)
        return LengthHistogram.from_lengths(part) if good else None

    found = LengthHistogram.merge(())
    batch = 64 * PART
    for first in range(0, lengths.size, batch):
        stop = min(first + batch, lengths.size)
        counted = run_all(
            [partial(count, start) for start in range(first, stop, PART)], num_threads
        )
        good = [part for part in counted if part is not None]
        if len(good) < len(counted):
            _refuse(lengths)
        found = LengthHistogram.merge((found, *good))
    return found


def _refuse(lengths: StoredLengths) -> None:
    first, number, value = -1, 0, 0
    for start, part in lengths.parts():
        bad = (part < 1) | (part > _LONGEST)
        if first < 0 and bool(bad.any()):
            place = int(bad.argmax())
            first, value = start + place, _raw(lengths, start + place)
        number += int(bad.sum())
    raise BadLengthError(
        f"length at position {first:,} is {value!r}; every length must be a whole number of at "
        f"least 1 ({number:,} of {lengths.size:,} are not)"
    )


def _raw(lengths: StoredLengths, sample: int) -> int:
    """As it was given: uint64 may be beyond int64."""
    shard = int(np.searchsorted(lengths.edges, sample, side="right")) - 1
    return int(lengths.shards[shard][sample - lengths.edges[shard]])
