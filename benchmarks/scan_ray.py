"""Scanning Parquet on a local Ray, beside the same scan on threads: what Ray costs here."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pages
import pyarrow as pa
import pyarrow.parquet as pq
from workloads import run_lengths, summary, times

import lengthwise as lw

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "scan-ray.md"
NUM_FILES = 20
REPEATS = 3


def measure(quick):
    """Seconds and a ratio; the shards of both engines are compared byte by byte."""
    if find_spec("ray") is None:
        return None
    from lengthwise.cluster.connect import connected

    num_rows = 200_000 if quick else 10_000_000
    lengths = run_lengths(num_rows)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        _write(source, lengths)
        size = sum(path.stat().st_size for path in source.iterdir())
        local = _engine(source, Path(folder), "local")
        with connected("local", num_cpus=os.cpu_count(), object_store_memory=200 << 20):
            ray = _engine(source, Path(folder), "ray")
        same = _contents(Path(folder) / "local0") == _contents(Path(folder) / "ray0")
    assert same
    found = {
        "num_rows": num_rows,
        "num_files": NUM_FILES,
        "file_bytes": size,
        "cores": os.cpu_count(),
        "local": local,
        "ray": ray,
        "ratio": ray["median_seconds"] / local["median_seconds"],
        "identical": same,
    }
    print(f"{num_rows:,} rows: Ray {found['ratio']:.2f} x threads, shards identical")
    return found


def fill_page(found):
    """The table of the guide."""
    rows = [
        (
            "threads" if name == "local" else "Ray, local",
            f"{found[name]['median_seconds']:.2f}",
            f"{found[name]['median_seconds'] / found['local']['median_seconds']:.2f}",
        )
        for name in ("local", "ray")
    ]
    table = pages.table(("engine", "seconds", "times the threads"), rows)
    text = (
        f"{found['num_rows']:,} rows in {found['num_files']} Parquet files "
        f"({found['file_bytes'] / 1e6:.0f} MB), an integer column, into shards, on "
        f"{found['cores']} cores; Ray runs already. The shards are the same to the last byte.\n\n"
        f"{table}"
    )
    pages.fill(PAGE, {"table:scan-ray": text})


def _engine(source, folder, engine):
    """Seconds of a scan into shards, each into a new directory; Ray runs already."""
    made = []

    def scan():
        lw.write_shards(source, folder / f"{engine}{len(made)}", engine=engine)
        made.append(engine)

    return summary(times(scan, REPEATS))


def _contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _write(folder, lengths):
    for number, part in enumerate(np.array_split(lengths, NUM_FILES)):
        column = pa.table({"seq_len": pa.array(part, pa.int32())})
        pq.write_table(column, folder / f"part-{number:03d}.parquet", row_group_size=100_000)
