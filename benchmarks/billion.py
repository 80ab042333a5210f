"""A plan of a billion samples: what it holds, and how long a batch of it is waited for.

Lengths lie in shards on disk, two bytes a sample, and are memory-mapped. The plan is made in a
process of its own, whose memory is read from the system: what is its own, and what is mapped.

    python benchmarks/run.py billion
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pages
import process_memory
from workloads import PUBLISHED, RUN_LIMITS, run_lengths

import lengthwise as lw
from lengthwise.core.resharding import Segment, deal_rest

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "billion.json"
PAGE = ROOT / "docs" / "concepts" / "large-data.md"
SIZES = (10_000_000, 1_000_000_000)
NUM_SHARDS = 1_000
REPLICAS = (1, 8, 10_000)
PER_GROUP = 16
BATCHES = 3_000
NUM_CHECKED = 200_000
FIXED = {"boundaries": PUBLISHED, "batch_sizing": "fixed"}


def measure(quick):
    """A row a size."""
    rows = []
    for num_samples in (1_000_000,) if quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="lengths-") as folder:
            write_shards(Path(folder), num_samples)
            command = [sys.executable, __file__, folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        print(json.dumps(rows[-1], indent=1), flush=True)
    return {"rows": rows}


def write_shards(folder, num_samples):
    """The run's lengths, drawn at random; uint16, a file a shard."""
    lengths = run_lengths().astype(np.uint16)
    rng = np.random.default_rng(0)
    for shard in range(NUM_SHARDS):
        own = rng.integers(0, lengths.size, num_samples // NUM_SHARDS)
        np.save(folder / f"lengths-{shard:04}.npy", lengths[own])


def memory():
    """Bytes of this process that are its own, that are of mapped files, and the most of both."""
    found = process_memory.memory("RssAnon", "RssFile", "VmHWM")
    return dict(zip(("own", "mapped", "most"), found, strict=True))


class Watch:
    """The most memory of its own that the process has, looked at all the time."""

    def __enter__(self):
        """Begin to look."""
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._stop.wait(0.01):
            self.most = max(self.most, memory()["own"])

    def __exit__(self, *_):
        """Look once more."""
        self._stop.set()
        self._thread.join()
        self.most = max(self.most, memory()["own"])


def measure_one(folder):
    """Set-up, memory and batches of the shards in a folder, in this process."""
    config = lw.BatchingConfig(limits=RUN_LIMITS, **FIXED)
    local = lw.BatchingConfig(limits=RUN_LIMITS, shards_per_group=PER_GROUP, **FIXED)
    _warm_up(config, local)
    shards = [np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))]
    num_samples = sum(shard.size for shard in shards)
    before = memory()
    started = time.perf_counter()
    with Watch() as watch:
        planner = lw.Planner(shards, config, num_replicas=REPLICAS[0])
    seconds = time.perf_counter() - started
    after = memory()
    views = [_view(planner.with_replicas(number)) for number in REPLICAS]
    found = {
        "num_samples": num_samples,
        "setup_seconds": seconds,
        "own_bytes_before": before["own"],
        "own_bytes_at_most": watch.most,
        "own_bytes_after": after["own"],
        "mapped_bytes_after": after["mapped"],
        "index_bytes": planner.prepared.words.nbytes,
        "bytes_per_sample": (watch.most - before["own"]) / num_samples,
        "views": views,
        "changed": _changed(planner),
        "num_checked": _check(planner.plan(0)),
        "own_bytes_at_end": memory()["own"],
    }
    del planner
    started = time.perf_counter()
    planner = lw.Planner(shards, local, num_replicas=REPLICAS[1])
    seconds = time.perf_counter() - started
    return {**found, "by_shards": {"setup_seconds": seconds, **_view(planner)}}


def _warm_up(*configs):
    """Compile or load every kernel."""
    shards = np.array_split(run_lengths(200_000).astype(np.uint16), NUM_SHARDS)
    for config in configs:
        planner = lw.Planner(shards, config, num_replicas=4)
        planner.plan(0).batch(0)
        planner.plan(0).source.gather(np.arange(2))
    deal_rest(planner.with_replicas(3), 0, [Segment(4, 2)])


def _view(planner):
    """What a rank takes for an epoch's plan, for its view, and for single batches of it."""
    rng = np.random.default_rng(1)
    batches, cpu, plans = [], [], []
    for epoch in range(3):
        started = time.perf_counter()
        plan = planner.plan(epoch)
        plans.append(time.perf_counter() - started)
        for _ in range(BATCHES // 30):
            own = plan.for_rank(int(rng.integers(planner.num_replicas)))
            for step in rng.integers(0, len(own), 10).tolist():
                started, worked = time.perf_counter(), time.thread_time_ns()
                own[step]
                cpu.append(time.thread_time_ns() - worked)
                batches.append(time.perf_counter() - started)
    microseconds, worked = np.array(batches) * 1e6, np.array(cpu) / 1e3
    median, most, worst = np.quantile(microseconds, [0.5, 0.99, 0.999])
    return {
        "num_replicas": planner.num_replicas,
        "num_batches": plan.num_batches,
        "plan_microseconds": min(plans) * 1e6,
        "median_microseconds": median,
        "p99_microseconds": most,
        "p999_microseconds": worst,
        "max_microseconds": microseconds.max(),
        "cpu_p99_microseconds": np.quantile(worked, 0.99),
        "cpu_max_microseconds": worked.max(),
        "num_measured": len(batches),
    }


def _changed(planner):
    """From 8 to 10,000 replicas in the middle of an epoch."""
    few, many = REPLICAS[1:]
    steps = planner.with_replicas(few).plan(0).num_steps // 2
    other = planner.with_replicas(many)
    started = time.perf_counter()
    rest = deal_rest(other, 0, [Segment(few, steps)])
    return {"seconds": time.perf_counter() - started, "num_batches": len(rest.source)}


def _check(plan):
    """Samples of many batches in a row: no two are the same, and all are there."""
    some = min(NUM_CHECKED, plan.num_batches)
    samples, _ = plan.source.gather(np.arange(some))
    assert np.unique(samples).size == samples.size
    assert int(samples.max()) < plan.num_samples
    return int(samples.size)


def table(found):
    """The page's tables."""
    columns = (
        "samples", "set-up, s", "own memory: before", "at most", "after", "bytes a sample",
        "mapped lengths",
    )  # fmt: skip
    lines = [
        (
            f"{row['num_samples']:,}",
            f"{row['setup_seconds']:.1f}",
            _mb(row["own_bytes_before"]),
            _mb(row["own_bytes_at_most"]),
            _mb(row["own_bytes_after"]),
            f"{row['bytes_per_sample']:.2f}",
            _mb(row["num_samples"] * 2),
        )
        for row in found["rows"]
    ]
    views = [
        (
            f"{row['num_samples']:,}",
            f"{view['num_replicas']:,}{by_shards}",
            f"{view['num_batches']:,}",
            f"{view['plan_microseconds']:,.0f}",
            f"{view['median_microseconds']:.0f}",
            f"{view['p99_microseconds']:.0f}",
            f"{view['p999_microseconds']:,.0f}",
            f"{view['max_microseconds']:,.0f}",
            f"{view['cpu_p99_microseconds']:.0f}",
            f"{view['cpu_max_microseconds']:.0f}",
        )
        for row in found["rows"]
        for view, by_shards in (
            *((view, "") for view in row["views"]),
            (row["by_shards"], f", {PER_GROUP} of {NUM_SHARDS:,} shards a group"),
        )
    ]
    names = (
        "samples", "replicas", "batches", "an epoch's plan, µs", "a batch, µs: median", "99 %",
        "99.9 %", "most", "of the processor: 99 %", "most",
    )  # fmt: skip
    changed = found["rows"][-1]["changed"]
    return "\n\n".join(
        (
            pages.table(columns, lines),
            pages.table(names, views),
            (
                f"From {REPLICAS[1]:,} to {REPLICAS[2]:,} replicas in the middle of the largest "
                f"epoch: {changed['seconds'] * 1000:,.0f} ms, after which "
                f"{changed['num_batches']:,} batches are left."
            ),
        )
    )


def _mb(size):
    return f"{size / 1e6:,.0f} MB"


def fill_page(found):
    """Put the tables between the page's marks."""
    pages.fill(PAGE, {"billion": table(found)})


if __name__ == "__main__":
    print(json.dumps(measure_one(Path(sys.argv[1]))))
