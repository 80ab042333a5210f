"""Up to 512 devices on paper: the costs of the run that this project began with, hosts of eight.

Nothing here was run on so many devices. What batches take is fitted to the original run's measured
rates (examples/original_run.py), and the drafter's cost is assumed; see there.

    python benchmarks/run.py large_pipeline
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pages
from workloads import RUN_LIMITS, run_lengths

import lengthwise as lw
from lengthwise.simulate import Machines, best_split, simulate, workload_of_batches

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import original_run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "simulation.md"
GUIDE = ROOT / "docs" / "guides" / "cluster.md"
DEVICES = (8, 64, 256, 512)
PER_HOST = 8
AHEAD, DEFAULT_AHEAD = 4, 2
"""Batches a target in the channel: here, and by the pipeline's default."""
WIDTHS = {"2,560": 25_600, "4,096": 40_960, "5,120": 51_200}
"""Hidden size of the target, and bytes of five taps of two bytes a value."""
LINKS = (400, 200, 100, 50, 25)
"""Gigabits a second that a host has."""


def measure(quick):
    """A row a number of devices; at the most of them, narrower links and other widths."""
    run = original_run.fit(original_run.plan())
    lengths = run_lengths(100_000 if quick else None)
    batches = lw.Planner(lengths, lw.BatchingConfig(limits=RUN_LIMITS)).plan(0).batches
    print(f"a target's batch: {run.target}")
    rows = []
    for num_devices in DEVICES[:2] if quick else DEVICES:
        rows.append(one_size(batches, run.target, num_devices))
        print(rows[-1], flush=True)
    largest = rows[-1]
    return {
        "target": vars_of(run.target),
        "drafter": vars_of(original_run.DRAFTER),
        "rows": rows,
        "links": [with_link(batches, run.target, largest, link) for link in LINKS],
        "widths": [
            {"hidden": hidden, "bytes_per_token": size, **bandwidth(largest, size)}
            for hidden, size in WIDTHS.items()
        ],
    }


def vars_of(cost):
    """A cost's three numbers."""
    return {name: getattr(cost, name) for name in cost.__dataclass_fields__}


def workload(batches, target, _num_targets, num_drafters):
    """An epoch for so many drafter devices."""
    return workload_of_batches(
        batches,
        target,
        original_run.DRAFTER,
        bytes_per_token=original_run.BYTES_PER_TOKEN,
        batches_per_step=num_drafters,
        feed_seconds=original_run.FEED_SECONDS,
    )


def machines(batches, target, ahead, num_targets, num_drafters):
    """So many devices, and room for so many batches a target beyond what steps need."""
    work = workload(batches, target, num_targets, num_drafters)
    return Machines(
        num_targets=num_targets,
        num_drafters=num_drafters,
        channel_bytes=work.channel_bytes(ahead * num_targets + 2),
        transfer_bytes_per_second=original_run.BYTES_PER_SECOND,
    )


def one_size(batches, target, num_devices):
    """The best split of so many devices, and of a host more."""
    make = (partial(workload, batches, target), partial(machines, batches, target, AHEAD))
    few = partial(machines, batches, target, DEFAULT_AHEAD)
    began = time.perf_counter()
    best = best_split(make[0], num_devices, make[1]).best
    seconds = time.perf_counter() - began
    more = best_split(make[0], num_devices + PER_HOST, make[1]).best
    row = {
        "num_devices": num_devices,
        "num_targets": best.machines.num_targets,
        "num_drafters": best.machines.num_drafters,
        "tokens_per_second": best.tokens_per_second,
        "target_busy": best.target_busy,
        "drafter_busy": best.drafter_busy,
        "bottleneck": None if best.bottleneck is None else best.bottleneck.kind,
        "epoch_seconds": best.seconds,
        "peak_channel_bytes": best.peak_channel_bytes,
        "one_host_more": more.tokens_per_second / best.tokens_per_second - 1,
        "with_one_host_more": [more.machines.num_targets, more.machines.num_drafters],
        "search_seconds": seconds,
        "default_channel": best_split(make[0], num_devices, few).best.tokens_per_second,
    }
    return {**row, **bandwidth(row, original_run.BYTES_PER_TOKEN)}


def bandwidth(row, bytes_per_token):
    """Bytes a second of hidden states: in all, out of a host of targets, into one of drafters."""
    total = row["tokens_per_second"] * bytes_per_token
    return {
        "bytes_per_second": total,
        "target_host_bytes_per_second": total / row["num_targets"] * PER_HOST,
        "drafter_host_bytes_per_second": total / row["num_drafters"] * PER_HOST,
    }


def with_link(batches, target, largest, gigabits):
    """The same split where a host's devices share a link of so many gigabits a second."""
    split = largest["num_targets"], largest["num_drafters"]
    narrow = replace(
        machines(batches, target, AHEAD, *split),
        transfer_bytes_per_second=gigabits * 1e9 / 8 / PER_HOST,
    )
    rate = simulate(workload(batches, target, *split), narrow).tokens_per_second
    return {
        "gigabits_per_second": gigabits,
        "tokens_per_second": rate,
        "share": rate / largest["tokens_per_second"],
    }


def table(found):
    """Devices, splits and rates."""
    columns = (
        "devices (hosts)", "targets + drafters", "tokens/s", "of linear", "targets busy",
        "drafters busy", "channel, GB/s in all", "out of a host of 8 targets",
        "into a host of 8 drafters", "in the channel at most", "one host more",
        "2 batches a target in the channel",
    )  # fmt: skip
    first = found["rows"][0]
    each = first["tokens_per_second"] / first["num_devices"]
    lines = [
        (
            f"{row['num_devices']} ({row['num_devices'] // PER_HOST})",
            f"{row['num_targets']} + {row['num_drafters']}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['tokens_per_second'] / row['num_devices'] / each:.1%}",
            f"{row['target_busy']:.1%}",
            f"{row['drafter_busy']:.1%}",
            f"{row['bytes_per_second'] / 1e9:.1f}",
            f"{row['target_host_bytes_per_second'] / 1e9:.1f}",
            f"{row['drafter_host_bytes_per_second'] / 1e9:.1f}",
            f"{row['peak_channel_bytes'] / 1e9:,.0f} GB",
            f"{row['one_host_more']:+.1%}",
            f"{row['default_channel']:,.0f}",
        )
        for row in found["rows"]
    ]
    return pages.table(columns, lines)


def link_table(found):
    """What narrower links leave of the rate."""
    names = ("a host's link, Gbit/s", "tokens/s", "of a link that is wide enough")
    lines = [
        (
            one["gigabits_per_second"],
            f"{one['tokens_per_second']:,.0f}",
            f"{one['share']:.1%}",
        )
        for one in found["links"]
    ]
    return pages.table(names, lines)


def width_table(found):
    """What other targets would have to hand over at the same rate of tokens."""
    names = (
        "hidden size", "kB a token", "a batch of 49,152 tokens", "512 devices, GB/s in all",
        "out of a host of 8 targets", "into a host of 8 drafters",
    )  # fmt: skip
    lines = [
        (
            one["hidden"],
            f"{one['bytes_per_token'] / 1000:.1f}",
            f"{one['bytes_per_token'] * RUN_LIMITS.max_tokens / 1e9:.2f} GB",
            f"{one['bytes_per_second'] / 1e9:.0f}",
            f"{one['target_host_bytes_per_second'] / 1e9:.2f}",
            f"{one['drafter_host_bytes_per_second'] / 1e9:.1f}",
        )
        for one in found["widths"]
    ]
    return pages.table(names, lines)


def fill_page(found):
    """Put the tables between the marks of both pages."""
    pages.fill(PAGE, {"512 devices": table(found), "links": link_table(found)})
    pages.fill(GUIDE, {"widths": width_table(found)})
