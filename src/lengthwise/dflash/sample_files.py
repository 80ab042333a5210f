"""One Parquet file of samples: its structure, checked from the footer, and its row groups."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import DataError, LengthwiseWarning
from lengthwise.lengths.api import scan_lengths
from lengthwise.lengths.arrow import require_pyarrow

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

IDS, MASK, LENGTH = "input_ids", "loss_mask", "seq_len"
LARGE_GROUP_BYTES = 256 << 20
"""Decoded size from which a row group is too large to be decoded for one sample."""


@dataclass(frozen=True, slots=True)
class Group:
    """A decoded row group.

    Attributes:
        path: of the file.
        first_row: of the group, within the file.
        ids: all tokens, one sample after the other.
        mask: the loss mask of all tokens, bool.
        id_offsets: sample i has ``ids[id_offsets[i]:id_offsets[i + 1]]``.
        mask_offsets: the same for ``mask``.
    """

    path: str
    first_row: int
    ids: npt.NDArray[np.integer[Any]]
    mask: npt.NDArray[np.bool_]
    id_offsets: Int64Array
    mask_offsets: Int64Array

    @property
    def num_bytes(self) -> int:
        """Memory of the values."""
        return self.ids.nbytes + self.mask.nbytes

    def sample(self, row: int) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
        """Copies of tokens (int64) and mask of a row of the file.

        Raises:
            DataError: they are not equally long.
        """
        at = row - self.first_row
        ids = self.ids[self.id_offsets[at] : self.id_offsets[at + 1]]
        mask = self.mask[self.mask_offsets[at] : self.mask_offsets[at + 1]]
        if len(ids) != len(mask):
            raise DataError(
                f"{self.path}, row {row:,} (counting from 0): input_ids has {len(ids):,} tokens "
                f"and loss_mask {len(mask):,} values; they must be equally many"
            )
        return ids.astype(np.int64), mask.copy()


@dataclass(frozen=True, eq=False)
class SampleFile:
    """A file of samples.

    Attributes:
        path: of the file.
        lengths: tokens of each row, int64 (num_rows,).
        group_starts: first row of each row group, and the number of rows.
        metadata: the footer.
    """

    path: str
    lengths: Int64Array
    group_starts: Int64Array
    metadata: Any = field(repr=False)

    def group_of(self, row: int) -> int:
        """The row group with ``row``."""
        return int(np.searchsorted(self.group_starts, row, side="right")) - 1

    def read_group(self, index: int) -> Group:
        """Decode a row group.

        Raises:
            DataError: a null list or value.
        """
        import pyarrow.parquet as pq

        first = int(self.group_starts[index])
        with pq.ParquetFile(self.path, memory_map=True, metadata=self.metadata) as file:
            table = file.read_row_group(index, columns=[IDS, MASK])
        ids, id_offsets = self._flat(table, IDS, first)
        mask, mask_offsets = self._flat(table, MASK, first)
        return Group(self.path, first, ids, mask.astype(np.bool_), id_offsets, mask_offsets)

    def _flat(self, table: Any, name: str, first: int) -> tuple[npt.NDArray[Any], Int64Array]:
        """The values of a list column and where each list begins."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = table.column(name).combine_chunks()
        lists = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        values = lists.flatten()
        if lists.null_count or values.null_count:
            bad = pc.is_null(lists) if lists.null_count else None
            row = first + (bad.index(True).as_py() if bad is not None else self._null_row(lists))
            raise DataError(f"{self.path}, row {row:,} (counting from 0): {name} has a null")
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return values.to_numpy(zero_copy_only=False), offsets

    def _null_row(self, lists: Any) -> int:
        """The first list with a null among its values."""
        return next(row for row in range(len(lists)) if lists[row].values.null_count)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Every id must be from 0 to ``vocab_size`` - 1.

        Raises:
            DataError: one is not; names the row.
        """
        leaf = _leaf(self.metadata, IDS)
        for index in range(self.metadata.num_row_groups):
            statistics = self.metadata.row_group(index).column(leaf).statistics
            known = statistics is not None and statistics.has_min_max
            if known and statistics.min >= 0 and statistics.max < vocab_size:
                continue
            group = self.read_group(index)
            wrong = np.flatnonzero((group.ids < 0) | (group.ids >= vocab_size))
            if wrong.size:
                at = int(np.searchsorted(group.id_offsets, wrong[0], side="right")) - 1
                raise DataError(
                    f"{self.path}, row {group.first_row + at:,} (counting from 0): input_ids has "
                    f"{group.ids[wrong[0]]:,}, and the target's vocabulary ends at "
                    f"{vocab_size - 1:,}; the samples were made with another tokenizer"
                )


def open_sample_file(path: str) -> SampleFile:
    """Read the footer and the lengths of a file, and check both.

    Raises:
        DataError: it is no Parquet file, lacks a column, or its columns do not fit together.

    Warns:
        LengthwiseWarning: a row group is too large to be read at random.
    """
    require_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is no Parquet file, or a damaged one: {error}") from None
    schema = metadata.schema.to_arrow_schema()
    _check_schema(schema, path)
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    starts = np.cumsum([0, *(group.num_rows for group in groups)])
    lengths = np.empty(0, dtype=np.int64)
    if metadata.num_rows:
        lengths = scan_lengths(path, column=LENGTH if LENGTH in schema.names else IDS).lengths
    file = SampleFile(path, lengths, starts, metadata)
    _check_totals(file, groups)
    return file


def _check_schema(schema: Any, path: str) -> None:
    import pyarrow as pa

    for name, kinds, words in (
        (IDS, (pa.types.is_integer,), "whole numbers"),
        (MASK, (pa.types.is_integer, pa.types.is_boolean), "true and false, or 1 and 0"),
    ):
        if name not in schema.names:
            raise DataError(
                f"{path} has no column {name!r} but {', '.join(schema.names)}; samples need "
                f"input_ids and loss_mask, as `lengthwise dflash prepare` writes them"
            )
        kind = schema.field(name).type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        listed = listed or pa.types.is_fixed_size_list(kind)
        if not listed or not any(fits(kind.value_type) for fits in kinds):
            raise DataError(f"{path}: {name} must be lists of {words}, but it is {kind}")


def _leaf(metadata: Any, name: str) -> int:
    """Place of the stored column behind a list column."""
    paths = [metadata.schema.column(place).path for place in range(len(metadata.schema))]
    return next(place for place, path in enumerate(paths) if path.split(".")[0] == name)


def _check_totals(file: SampleFile, groups: list[Any]) -> None:
    """Numbers of values in the footer against the lengths: no token is read."""
    leaves = {name: _leaf(file.metadata, name) for name in (IDS, MASK)}
    for index, group in enumerate(groups):
        first, end = file.group_starts[index : index + 2]
        expected = int(file.lengths[first:end].sum())
        for name, leaf in leaves.items():
            found = group.column(leaf).num_values
            if found != expected:
                row = _first_wrong(file, name, int(first), int(end))
                raise DataError(
                    f"{file.path}: rows {first:,} to {end - 1:,} have {expected:,} tokens by "
                    f"their lengths and {found:,} values in {name}{row}; repair or prepare anew"
                )
        size = sum(group.column(leaf).total_uncompressed_size for leaf in leaves.values())
        if size > LARGE_GROUP_BYTES:
            warnings.warn(
                f"{file.path}: row group {index} has {size >> 20:,} MiB, all of which is decoded "
                f"to read one sample of it; write it anew with small row groups (say "
                f"row_group_size=256 in pyarrow)",
                LengthwiseWarning,
                stacklevel=4,
            )


def _first_wrong(file: SampleFile, name: str, first: int, end: int) -> str:
    """Which row's list is not as long as its length says, in words."""
    found = scan_lengths(file.path, column=name, on_bad="skip")
    counted = np.zeros(len(file.lengths), dtype=np.int64)
    rows = np.arange(len(counted)) if found.row_index is None else found.row_index
    counted[rows] = found.lengths
    wrong = np.flatnonzero(counted[first:end] != file.lengths[first:end])
    if not wrong.size:
        return ""
    row = first + int(wrong[0])
    return f" (the first: row {row:,} with {file.lengths[row]:,} and {counted[row]:,})"
