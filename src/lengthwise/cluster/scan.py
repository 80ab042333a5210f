"""Scan files on one machine or many: lengths in memory, or in shards on disk."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError
from lengthwise.lengths.api import default_threads, read_options
from lengthwise.lengths.engine import Threads
from lengthwise.lengths.job_scan import cut_source, gather_jobs, require_rows
from lengthwise.lengths.jobs import ROWS_PER_SHARD
from lengthwise.lengths.shard_scan import scan_into

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.engine import Engine
    from lengthwise.lengths.result import ScanResult
    from lengthwise.lengths.shard_scan import ShardScan

ENGINES = ("local", "ray")


def scan_on_ray(
    source: Any,
    *,
    column: str | None = None,
    on_bad: str = "error",
    tokenizer: Any = None,
    ray_address: str | None = None,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> ScanResult:
    """As :func:`~lengthwise.scan_lengths`, read by the tasks of a Ray cluster.

    The result is the same to the last bit: lengths and their order, counts, errors.

    Args:
        source: a path, URL, glob or directory, or a list of them, that every node can read.
        column: as for ``scan_lengths``.
        on_bad: likewise.
        tokenizer: likewise; it is sent to the nodes.
        ray_address: see :func:`~lengthwise.cluster.connect.connected`.
        progress: as for ``scan_lengths``.

    Raises:
        ClusterError: no Ray can be started or joined, or work was lost too often.
        MissingDependencyError: Ray is not installed.
        LengthwiseError: as ``scan_lengths``.
    """
    options = read_options(on_bad, tokenizer)
    with _engine("ray", ray_address, None) as engine:
        cut = cut_source(source, column, options, tokenizer, engine)
        return gather_jobs(cut, engine, progress)


def write_shards(
    source: Any,
    output: str | os.PathLike[str],
    *,
    engine: str = "local",
    column: str | None = None,
    on_bad: str = "error",
    tokenizer: Any = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    threads: int | None = None,
    ray_address: str | None = None,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> ShardScan:
    """Scan files into a directory of shards, which are memory-mapped when they are read.

    What is finished stays: the same call goes on where an earlier one stood, whatever ended it,
    and writes the same bytes. :func:`~lengthwise.open_shards` opens the directory.

    Args:
        source: a path, URL, glob or directory, or a list of them; with ``engine="ray"`` every node
            must be able to read it.
        output: a directory of the machine that calls; made if its parent is there.
        engine: "local", threads of this process; or "ray", tasks of a cluster.
        column: as for :func:`~lengthwise.scan_lengths`.
        on_bad: likewise.
        tokenizer: likewise.
        rows_per_shard: rows after which a shard ends; a run of row groups of about a million rows,
            and a file of another format, are never cut.
        threads: of the local engine; by default one per CPU core.
        ray_address: see :func:`~lengthwise.cluster.connect.connected`.
        progress: as for ``scan_lengths``.

    Raises:
        ConfigError: ``output`` holds another scan or anything else, or an argument is wrong.
        ClusterError: no Ray can be started or joined, or work was lost too often.
        MissingDependencyError: Ray is not installed.
        LengthwiseError: as ``scan_lengths``.
    """
    options = read_options(on_bad, tokenizer)
    with _engine(engine, ray_address, threads) as runner:
        cut = cut_source(source, column, options, tokenizer, runner, rows_per_shard)
        require_rows(cut)
        report = cut.counter(progress)
        return scan_into(Path(output), cut.jobs, cut.reading, cut.settings, runner, report)


@contextmanager
def _engine(name: str, ray_address: str | None, threads: int | None) -> Iterator[Engine]:
    if name not in ENGINES:
        raise ConfigError(f"engine must be 'local' or 'ray', got {name!r}")
    if name == "local":
        yield Threads(default_threads(threads))
        return
    from lengthwise.cluster.connect import connected
    from lengthwise.cluster.engine import RayTasks

    with connected(ray_address) as ray:
        yield RayTasks(ray)
