"""A plan as a Parquet file: one row a batch, in the order in which they run.

Columns: ``step`` (int64), ``rank`` (int32), ``num_samples`` (int32), ``padded_length`` (int64,
tokens each sample is padded to), ``real_tokens`` (int64), ``indices`` (list of int64). The file's
metadata holds, under ``lengthwise``, the format, the version of the planning rules, fingerprint,
epoch, replicas, config and stats.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.file_format import PLAN
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.errors import DataError, MissingDependencyError, PlanMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.plan import EpochPlan

_KEY = b"lengthwise"
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class SavedPlan:
    """A plan read back from a file.

    Attributes:
        fingerprint: of data, config, replica count and planning rules.
        epoch: which epoch.
        num_replicas: replicas it was made for.
        config: the config as plain values.
        batches: sample indices of each batch, in order; int64 each.
    """

    fingerprint: str
    epoch: int
    num_replicas: int
    config: dict[str, Any]
    batches: list[Int64Array]


def write_plan(plan: EpochPlan, path: str | Path, row_index: Int64Array | None = None) -> None:
    """Write every batch of the plan to a Parquet file.

    Args:
        plan: what to write.
        path: where to.
        row_index: row in the source of each planned sample, where bad rows were skipped
            (:attr:`ScanResult.row_index`); the file then names rows of the source.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    pa, parquet = _pyarrow()
    schema = pa.schema(
        [
            ("step", pa.int64()),
            ("rank", pa.int32()),
            ("num_samples", pa.int32()),
            ("padded_length", pa.int64()),
            ("real_tokens", pa.int64()),
            ("indices", pa.list_(pa.int64())),
        ],
        metadata={_KEY: json.dumps(_metadata(plan)).encode()},
    )
    with parquet.ParquetWriter(str(path), schema, compression="zstd") as writer:
        for first in range(0, plan.num_batches, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, plan.num_batches)
            writer.write_table(_rows(plan, first, last, row_index))


def _rows(plan: EpochPlan, first: int, last: int, row_index: Int64Array | None) -> Any:
    pa, _ = _pyarrow()
    batches = plan.batches
    places = np.arange(first, last)
    sizes = batches.sizes[first:last]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    indices = batches.order[np.repeat(batches.starts[first:last], sizes) + inside]
    if row_index is not None:
        indices = row_index[indices]
    return pa.table(
        {
            "step": pa.array(places // plan.num_replicas, pa.int64()),
            "rank": pa.array(places % plan.num_replicas, pa.int32()),
            "num_samples": pa.array(sizes, pa.int32()),
            "padded_length": pa.array(batches.padded[first:last], pa.int64()),
            "real_tokens": pa.array(batches.tokens[first:last], pa.int64()),
            "indices": pa.ListArray.from_arrays(
                pa.array(offsets), pa.array(indices.astype(np.int64))
            ),
        }
    )


def _metadata(plan: EpochPlan) -> dict[str, Any]:
    return {
        "format": PLAN.name,
        "version": plan.version,
        "fingerprint": plan.fingerprint,
        "epoch": plan.epoch,
        "num_replicas": plan.num_replicas,
        "config": plan.config.to_dict(),
        "stats": plan.stats.to_dict(),
    }


def read_plan(path: str | Path) -> SavedPlan:
    """Read a plan that :func:`write_plan` wrote.

    Raises:
        DataError: the file is no plan.
        PlanMismatchError: it follows another version of the planning rules.
    """
    pa, parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(str(path))
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is not a Parquet file, so it holds no plan: {error}") from None
    raw = (file.schema_arrow.metadata or {}).get(_KEY)
    if raw is None:
        raise DataError(f"{path} is a Parquet file, but not a plan (no lengthwise metadata)")
    about = json.loads(raw)
    if about.get("format", PLAN.name) != PLAN.name:
        raise DataError(f"{path} is a file of format {about['format']!r}, not {PLAN.name!r}")
    if about["version"] != PLAN_VERSION:
        raise PlanMismatchError(
            f"{path} follows version {about['version']} of the planning rules; this is version "
            f"{PLAN_VERSION}. Plan again, or use the release that wrote it."
        )
    batches: list[Int64Array] = []
    for group in file.iter_batches(columns=["indices"]):
        column = group.column(0)
        offsets = column.offsets.to_numpy()
        values = column.values.to_numpy()
        batches += [values[a:b] for a, b in pairwise(offsets)]
    return SavedPlan(
        about["fingerprint"], about["epoch"], about["num_replicas"], about["config"], batches
    )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError(
            "Parquet files need pyarrow: pip install 'lengthwise[parquet]'"
        ) from None
    return pa, parquet
