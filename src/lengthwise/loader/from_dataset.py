"""The lengths of a data set's samples, without reading the samples."""

from __future__ import annotations

import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset, IterableDataset, Subset

from lengthwise.core.histogram import LengthHistogram, check_lengths
from lengthwise.errors import BadLengthError, ColumnError, ConfigError, DataError, LengthwiseWarning
from lengthwise.lengths.api import scan_lengths
from lengthwise.lengths.checks import warnings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.core.limits import Int64Array

REPORT_EVERY_SECONDS = 2.0
_WAYS_OUT = (
    "Either pass lengths= (an array you saved once; lengthwise.read_lengths gets one from the "
    "files), or give the data set an attribute or method `lengths`, or let every sample be read "
    "now with scan=True (on every replica, at every start), with length_fn= where a sample is not "
    "a list of tokens or a record that holds one."
)


def lengths_of(
    dataset: Any,
    column: str | None = None,
    length_fn: Callable[[Any], int] | None = None,
    *,
    scan: bool = False,
) -> Int64Array:
    """Tokens of every sample of the object that a loader will index, found cheaply.

    * a Hugging Face data set: a column of lengths, or the structure of a column of tokens, from
      Arrow in bulk, following ``shuffle``, ``select`` and ``filter``;
    * anything with ``lengths``, an array or a method that returns one;
    * ``Subset``, ``ConcatDataset`` and the parts of ``random_split`` over these, nested as you
      like. No other wrapper is looked through: what it does to samples may change their lengths;
    * a list or tuple in memory, of token lists or records.

    Anything else would have to be read sample by sample, which is refused unless ``scan=True``.

    Args:
        dataset: map-style.
        column: of a Hugging Face data set, or the key of records: where lengths or tokens are.
        length_fn: with ``scan``, tokens of a sample as the data set returns it.
        scan: read every sample; progress goes to standard error.

    Returns:
        int64, shape (len(dataset),).

    Raises:
        ColumnError: no column of lengths, or more than one.
        DataError: a data set without cheap lengths (the message names the ways out), without row
            numbers, or whose ``lengths`` are not as many as its samples.
        BadLengthError: a length is not a whole number of at least 1.
        ConfigError: ``length_fn`` without ``scan``.

    Warns:
        LengthwiseWarning: all lengths are equal, or one dominates.
    """
    if length_fn is not None and not scan:
        raise ConfigError(
            "length_fn reads every sample of the data set; allow that with scan=True, or save the "
            "lengths once and pass lengths="
        )
    lengths = _scanned(dataset, column, length_fn) if scan else _cheap(dataset, column)
    if hasattr(dataset, "__len__") and len(dataset) != lengths.size:
        raise DataError(
            f"the {type(dataset).__name__} has {len(dataset):,} samples and {lengths.size:,} "
            f"lengths; both must come from the object that the loader indexes"
        )
    for warning in warnings_for(LengthHistogram.from_lengths(lengths)):
        warnings.warn(warning, LengthwiseWarning, stacklevel=2)
    return lengths


def _cheap(dataset: Any, column: str | None) -> Int64Array:
    kind = type(dataset)
    if isinstance(dataset, Subset) and kind.__getitem__ is Subset.__getitem__:
        return _cheap(dataset.dataset, column)[np.asarray(dataset.indices, np.int64)]
    if isinstance(dataset, ConcatDataset) and kind.__getitem__ is ConcatDataset.__getitem__:
        return np.concatenate([_cheap(part, column) for part in dataset.datasets])
    if _is_stream(dataset):
        raise DataError(
            f"a {kind.__name__} is a stream: its samples have no numbers, which a plan of batches "
            f"needs. Use lengthwise.loader.StreamingBucketBatcher, or a map-style data set"
        )
    if kind.__module__.partition(".")[0] == "datasets" or isinstance(dataset, (list, tuple)):
        return scan_lengths(dataset, column=column).lengths
    own = getattr(dataset, "lengths", None)
    if own is None:
        raise DataError(f"the lengths of a {kind.__name__} are not known. {_WAYS_OUT}")
    if column is not None:
        raise ColumnError(
            f"column {column!r} was asked for, but a {kind.__name__} has no columns; its "
            f"`lengths` would be used"
        )
    return check_lengths(own() if callable(own) else own)


def _is_stream(dataset: Any) -> bool:
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def _scanned(
    dataset: Any, column: str | None, length_fn: Callable[[Any], int] | None
) -> Int64Array:
    if _is_stream(dataset):
        return _cheap(dataset, column)  # says why not
    count = len(dataset)
    samples = _read_all(dataset, count)
    if length_fn is None:
        return scan_lengths(samples, column=column).lengths
    found = [_length(length_fn, sample, row) for row, sample in enumerate(samples)]
    return check_lengths(np.array(found, dtype=object if not found else None))


def _length(length_fn: Callable[[Any], int], sample: Any, row: int) -> int:
    length = length_fn(sample)
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
        raise BadLengthError(
            f"row {row:,}: length_fn returned {length!r}; a length is a whole number of at least 1"
        )
    return int(length)


def _read_all(dataset: Any, count: int) -> Iterator[Any]:
    """Every sample, telling now and then how many have been read."""
    started = told = time.monotonic()
    for row in range(count):
        yield dataset[row]
        now = time.monotonic()
        if now - told >= REPORT_EVERY_SECONDS:
            told = now
            _tell(f"read {row + 1:,} of {count:,} samples ({(row + 1) / count:.0%})")
    _tell(f"read {count:,} samples for their lengths in {time.monotonic() - started:.1f} s")


def _tell(message: str) -> None:
    sys.stderr.write(f"lengthwise: {message}\n")
