"""Save lengths, so that the next reading takes no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.file_format import LENGTHS
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    import os

    from lengthwise.lengths.result import ScanResult

SUFFIXES = (".npy", ".parquet")


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse early what :func:`save_lengths` cannot write.

    Raises:
        ConfigError: another suffix than .npy or .parquet, or a directory that is not there.
    """
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise ConfigError(f"lengths are saved as .npy or .parquet, not {target.name!r}")
    if not target.parent.is_dir():
        raise ConfigError(f"there is no directory {str(target.parent)!r} to write {target.name}")


def save_lengths(scan: ScanResult, path: str | os.PathLike[str]) -> None:
    """Write the lengths of a scan; the file appears whole or not at all.

    ``.npy`` holds the lengths of the kept rows (int64, shape (num_kept,)). ``.parquet`` has the
    columns ``row`` (place in the source, counted from 0) and ``length``.

    Raises:
        ConfigError: another suffix, or no such directory.
    """
    check_target(path)
    target = Path(path)
    part = target.with_name(f".{target.name}.part")
    if target.suffix == ".npy":
        with part.open("wb") as file:
            np.save(file, scan.lengths)
    else:
        from lengthwise.lengths.arrow import require_pyarrow

        pa = require_pyarrow()
        from pyarrow.parquet import write_table

        rows = np.arange(scan.num_kept) if scan.row_index is None else scan.row_index
        about = {b"lengthwise": json.dumps(LENGTHS.stamp()).encode()}
        table = pa.table({"row": rows, "length": scan.lengths}).replace_schema_metadata(about)
        write_table(table, part)
    part.replace(target)
