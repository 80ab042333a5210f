"""Streams: efficiency, diversity and speed of the batcher on the run's lengths, beside the planner.

Every pass reads the 902,087 lengths in random order, another one each epoch where nothing else is
said; a sample is its length, so that reading costs next to nothing. Speeds are of one process
with a clock of its own processor time, so that other processes on the machine count less.
"""

from __future__ import annotations

import pickle
import time

import numpy as np
from workloads import PUBLISHED, RUN_LIMITS, run_histogram

import lengthwise as lw
from lengthwise.core.batches import Batches
from lengthwise.loader import StreamingBucketBatcher

BUFFERS = (512, 1024, 2048, 4096, 8192)
STEP = 8
LIMITS = {"max_tokens": RUN_LIMITS.max_tokens, "max_batch_size": RUN_LIMITS.max_batch_size}


def measure(quick):
    """Rows of streams and of plans, and what saving and loading a state costs."""
    lengths = run_histogram().to_lengths()[:: 20 if quick else 1]
    rows = []

    def add(row):
        rows.append(row)
        print(_line(row), flush=True)

    for buffer in BUFFERS:
        add(_stream(f"pool, buffer {buffer}", lengths, buffer_samples=buffer))
    add(_stream(f"pool, {STEP} batches a step", lengths, accumulation_steps=STEP))
    add(_stream("pool, same order every epoch", lengths, shuffled=False))
    add(_stream("published six buckets", lengths, boundaries=PUBLISHED))
    add(_stream("six learned buckets", lengths, num_buckets=6))
    add(_stream("pool, 8 replicas of one stream", lengths, num_replicas=8, rank=0))
    for name, fields in (
        ("plan: pool (default)", {}),
        ("plan: windows of 1024", {"strategy": "windowed"}),
        ("plan: published six buckets", {"boundaries": PUBLISHED}),
    ):
        add(_plan(name, lengths, **fields))
    return {"rows": rows, "state": _state(lengths)}


def _order(size, seed):
    return np.random.default_rng(seed).permutation(size)


def _stream(name, lengths, *, shuffled=True, num_replicas=1, rank=0, **options):
    orders = [_order(lengths.size, seed if shuffled else 0) for seed in (0, 1)]
    batcher = StreamingBucketBatcher(
        lambda epoch: zip(orders[epoch].tolist(), lengths[orders[epoch]].tolist(), strict=True),
        lambda sample: sample[1],
        **LIMITS,
        num_replicas=num_replicas,
        rank=rank,
        **options,
    )
    started = time.process_time()
    first = list(batcher)
    seconds = time.process_time() - started
    stats = batcher.stats
    row = {
        "name": name,
        "efficiency": stats.efficiency,
        "utilization": stats.real_tokens / (stats.num_batches * RUN_LIMITS.max_tokens),
        "num_batches": stats.num_batches,
        "samples_per_second": stats.num_read / seconds,
    }
    if num_replicas > 1:
        return row
    return {
        **row,
        **_diversity(_batches(first, lengths), _batches(list(batcher), lengths), lengths),
    }


def _batches(found, lengths):
    """Batches of (index, length) pairs as flat arrays."""
    order = np.array([index for batch in found for index, _ in batch], np.uint32)
    sizes = np.array([len(batch) for batch in found], np.int64)
    starts = np.cumsum(sizes) - sizes
    return Batches(
        order,
        starts,
        sizes,
        np.maximum.reduceat(lengths[order], starts),
        np.add.reduceat(lengths[order], starts),
    )


def _diversity(batches, following, lengths):
    found = lw.measure_diversity(batches, lengths, next_batches=following, accumulation_steps=STEP)
    return {
        "repeat_rate": found.partner_repeat_rate,
        "order_correlation": found.order_correlation,
        "design_effect": found.design_effect,
    }


def _plan(name, lengths, **fields):
    config = lw.BatchingConfig(limits=RUN_LIMITS, accumulation_steps=STEP, **fields)
    planner = lw.Planner(lengths, config)
    planner.plan(2)  # compiles
    started = time.process_time()
    plan = planner.plan(0)
    seconds = time.process_time() - started
    return {
        "name": name,
        "efficiency": plan.stats.efficiency,
        "utilization": plan.stats.utilization,
        "num_batches": plan.num_batches,
        "samples_per_second": lengths.size / seconds,
        **_diversity(plan.batches, planner.plan(1).batches, lengths),
    }


def _state(lengths):
    """Saving, pickling and loading after half of a pass, without the samples' own weight."""
    order = _order(lengths.size, 0)
    stream = lengths[order].tolist()
    found = {}
    for kind in ("store", "replay"):

        def make(kind=kind):
            return StreamingBucketBatcher(stream, int, **LIMITS, state_samples=kind)

        batcher = make()
        for _ in zip(range(lengths.size // 50), batcher, strict=False):
            pass
        started = time.process_time()
        saved = pickle.dumps(batcher.state_dict())
        middle = time.process_time()
        fresh = make()
        fresh.load_state_dict(pickle.loads(saved))
        next(iter(fresh))
        found[kind] = {
            "bytes": len(saved),
            "save_seconds": middle - started,
            "load_seconds": time.process_time() - middle,
            "samples_read_before": batcher.stats.num_read,
        }
        print(f"state, {kind}: {found[kind]}", flush=True)
    return found


def table(found):
    """The guide's table, from a result."""
    lines = [
        "| formed by | efficiency | utilization | batches | repeats | design effect | samples/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        repeats = f"{row['repeat_rate']:.5f}" if "repeat_rate" in row else ""
        effect = f"{row['design_effect']:.2g}" if "design_effect" in row else ""
        lines.append(
            f"| {row['name']} | {row['efficiency']:.4f} | {row['utilization']:.4f} | "
            f"{row['num_batches']:,} | {repeats} | {effect} | {row['samples_per_second']:,.0f} |"
        )
    return "\n".join(lines)


def _line(row):
    line = (
        f"{row['name']:32} efficiency {row['efficiency']:.4f} utilization "
        f"{row['utilization']:.4f} {row['num_batches']:>7,} batches "
        f"{row['samples_per_second']:>12,.0f} samples/s"
    )
    if "repeat_rate" not in row:
        return line
    return (
        f"{line} repeats {row['repeat_rate']:.6f} order {row['order_correlation']:+.3f} "
        f"design effect {row['design_effect']:.3g}"
    )
