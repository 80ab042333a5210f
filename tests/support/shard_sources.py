"""Collections to scan, with what is in them known beforehand."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LONGEST = 70_000


def some_lengths(count, seed=0):
    """Lengths of many sizes; int64, shape (count,)."""
    values = np.random.default_rng(seed).lognormal(5, 1.5, count).astype(np.int64) + 1
    return np.minimum(values, LONGEST)


def write_parquet(folder, counts, *, row_group_size=500, nulls=(), name="length"):
    """Files of lengths; returns all lengths in order, 0 where a row is null.

    Args:
        folder: made here.
        counts: rows of each file.
        row_group_size: rows of a row group.
        nulls: rows, counted over all files, without a length.
        name: of the column.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lengths = some_lengths(sum(counts))
    lengths[list(nulls)] = 0
    first = 0
    for number, count in enumerate(counts):
        rows = lengths[first : first + count]
        column = pa.array(rows, pa.int32(), mask=rows == 0)
        table = pa.table({"other": pa.array(["x" * 50] * count), name: column})
        pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=row_group_size)
        first += count
    return lengths


def write_token_lists(path, lengths, row_group_size=100):
    """A Parquet file of token lists, random so that nothing makes them small."""
    values = np.random.default_rng(1).integers(0, 2**31, int(lengths.sum()), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
    pq.write_table(
        pa.table({"input_ids": column}), path, row_group_size=row_group_size, compression="none"
    )


def write_jsonl(folder, counts, broken=()):
    """Files of records; ``broken`` lists (file, line) from (0, 1) on that hold no JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    lengths = some_lengths(sum(counts), seed=2)
    first = 0
    for number, count in enumerate(counts):
        lines = [json.dumps({"length": int(n)}) for n in lengths[first : first + count]]
        for file, line in broken:
            if file == number:
                lines[line - 1] = "{oh"
        (folder / f"part-{number:03d}.jsonl").write_text("\n".join(lines) + "\n")
        first += count
    return lengths
