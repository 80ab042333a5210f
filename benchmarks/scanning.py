"""Reading lengths from Parquet, beside pyarrow reading the same column alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from workloads import run_lengths, summary, times

import lengthwise as lw

ROWS_AT_ONCE = 20_000


def measure(quick):
    """Seconds for an integer column beside a wide token column, and for the token column itself."""
    lengths = run_lengths(100_000 if quick else None)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokens.parquet")
        _write(path, lengths // 10)
        alone = summary(times(lambda: pq.read_table(path, columns=["seq_len"]), 5))
        ours = summary(times(lambda: lw.read_lengths(path, column="seq_len"), 5))
        offsets = summary(times(lambda: _list_lengths(path), 3))
        lists = summary(times(lambda: lw.read_lengths(path, column="input_ids"), 3))
        size = Path(path).stat().st_size
    rows = {
        "num_rows": int(lengths.size),
        "file_bytes": size,
        "integer_column": ours,
        "integer_column_by_pyarrow": alone,
        "integer_column_ratio": ours["median_seconds"] / alone["median_seconds"],
        "list_column": lists,
        "list_column_by_pyarrow": offsets,
        "list_column_ratio": lists["median_seconds"] / offsets["median_seconds"],
    }
    print(
        f"{lengths.size:,} rows, {size / 1e6:.0f} MB: integer column "
        f"{rows['integer_column_ratio']:.2f} x pyarrow, "
        f"list column {rows['list_column_ratio']:.2f} x"
    )
    return rows


def _list_lengths(path):
    """What a careful user writes: each row group's offsets, without touching a value."""
    file = pq.ParquetFile(path)
    return [
        np.diff(chunk.offsets.to_numpy())
        for group in range(file.num_row_groups)
        for chunk in file.read_row_group(group, columns=["input_ids"]).column(0).chunks
    ]


def _write(path, lengths):
    """A token column a tenth as wide as the run's, which fits a small machine's disk."""
    schema = pa.schema([("input_ids", pa.list_(pa.int32())), ("seq_len", pa.int32())])
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, lengths.size, ROWS_AT_ONCE):
            part = lengths[start : start + ROWS_AT_ONCE]
            offsets = np.concatenate(([0], np.cumsum(part))).astype(np.int32)
            tokens = rng.integers(0, 49_152, offsets[-1], dtype=np.int32)
            column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))
            table = pa.table({"input_ids": column, "seq_len": pa.array(part, pa.int32())}, schema)
            writer.write_table(table)
