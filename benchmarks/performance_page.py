"""docs/concepts/performance.md, from the result files.

python benchmarks/performance_page.py     # writes it anew; `make bench` does so at its end
"""

from __future__ import annotations

import json
from pathlib import Path

import pages

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "concepts" / "performance.md"
HEAD = """# How fast it is

Written by `make bench` from `benchmarks/results/`. Machines differ and this one is shared: read the
ratios to what was measured beside it in the same run, not the seconds.
"""


def main():
    """Write the page from the parts that have results."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            data = json.loads(path.read_text(encoding="utf-8"))
            parts += [section(data["result"]), f"*{_machine(data['machine'])}*\n"]
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def _machine(about):
    packages = ", ".join(f"{name} {about[name]}" for name in ("lengthwise", "numpy", "numba"))
    return f"{about['processor']}, {about['cores']} cores, Python {about['python']}, {packages}"


def _table(columns, rows):
    return pages.table(columns, rows) + "\n"


def planning(found):
    """Planning speed, against a bare greedy scan."""
    planned = [row for row in found["rows"] if row["strategy"] != "fixed"]
    fixed = [row for row in found["rows"] if row["strategy"] == "fixed"]
    rows = [
        (
            f"{row['num_samples']:,}",
            row["strategy"],
            row["num_threads"],
            f"{row['million_samples_per_second']:.1f}",
            f"{row['times_the_floor']:.0f}",
            f"{row['setup_seconds']:.2f}",
            f"{row['bytes_per_sample']:.1f}" if row["num_samples"] > 10**7 else "",
        )
        for row in planned
    ]
    columns = (
        "samples",
        "strategy",
        "threads",
        "million samples a second",
        "times a bare scan",
        "set-up, s",
        "peak bytes a sample",
    )
    text = (
        "## Planning an epoch\n\n"
        "On lengths drawn from the run's distribution, 8 replicas, the order of batches included, "
        "after set-up. A *bare scan* is one greedy pass over the lengths as they lie, on one "
        "thread: less than any planner does. Memory is above the lengths themselves.\n\n"
        + _table(columns, rows)
    )
    for row in fixed:
        text += (
            f"\nFixed sizing, {row['num_samples']:,} samples: any batch of any epoch in "
            f"{row['batch_median_microseconds']:.0f} microseconds (99 % within "
            f"{row['batch_p99_microseconds']:.0f}).\n"
        )
    return text


def ordering(found):
    """Balancing."""
    return (
        f"## Order of batches\n\n{found['num_batches']:,} batches are balanced over steps of eight "
        f"in {found['median_seconds'] * 1000:.0f} ms, to a design effect of length of "
        f"{found['design_effect']:.1g}.\n"
    )


def optimiser(found):
    """Boundaries: quality and time."""
    rows = [
        (
            row["name"],
            f"{row['expected_efficiency']:.5f}",
            f"{row['simulated_efficiency']:.5f}",
            f"{row['expected_batches']:,.0f}",
            f"{row['simulated_batches']:,.0f}",
        )
        for row in found["rows"]
    ]
    columns = ("boundaries", "expected", "packed", "batches expected", "batches packed")
    return (
        "## Boundaries\n\nExpected efficiency against three packed epochs, on the run's "
        "distribution.\n\n"
        + _table(columns, rows)
        + f"\nSix buckets take {found['six_buckets']['median_seconds']:.2f} s to optimise, every "
        f"number up to 64 {found['curve_to_64']['median_seconds']:.1f} s.\n"
    )


def scanning(found):
    """Reading lengths."""
    return (
        f"## Reading lengths\n\nA Parquet file of {found['num_rows']:,} rows and "
        f"{found['file_bytes'] / 1e6:,.0f} MB: the integer column in "
        f"{found['integer_column_ratio']:.2f} times the time in which pyarrow reads that column "
        f"alone; the token column's lengths in {found['list_column_ratio']:.2f} times what "
        f"reading its offsets through pyarrow takes.\n"
    )


def collating(found):
    """Collators beside transformers'."""
    names = {"pad": "`PadCollator`", "pack": "`PackCollator`"}
    rows = [
        (names[key.split("_")[0]], key.split("_")[1], f"{row['ratio']:.1f}")
        for key, row in found.items()
        if isinstance(row, dict)
    ]
    columns = ("collator", "samples as", "times as fast as transformers' own")
    return (
        f"## Collating\n\nBatches of the run's shape, one thread, beside transformers "
        f"{found['transformers']}.\n\n" + _table(columns, rows)
    )


def sampling(found):
    """Samplers beside their peers."""
    rows = [
        (
            row["sampler"],
            f"{row['num_samples']:,}",
            f"{row['batches_per_second']:,.0f}",
            f"{row['bytes_per_sample']:.0f}",
        )
        for row in found["rows"]
    ]
    columns = ("sampler", "samples", "batches a second", "peak bytes a sample")
    resumed = found["resume"]
    peers = ", ".join(f"{name} {seen}" for name, seen in found["versions"].items() if seen)
    return (
        f"## Handing out batches\n\nA whole epoch with planning, no data behind it, the fastest of "
        f"several ({peers}). The machine's load was {found['load']:.1f} meanwhile, about 1 of it "
        f"ours{', which ran at raised priority' if found['niceness'] < 0 else ''}.\n\n"
        + _table(columns, rows)
        + f"\nResuming at step {resumed['step']:,} of {resumed['num_steps']:,} takes "
        f"{resumed['milliseconds']:.0f} ms to the first batch.\n"
    )


def dflash_step(found):
    """A drafter's training step beside that of speculators."""
    kinds = ("step", "step, their labels given", "layers without a head")
    rows = [
        (
            row["name"],
            f"{row['hidden_size']:,}",
            f"{row['vocab']:,}",
            f"{row['tokens']:,} in {row['documents']}",
            f"{row['blocks']} of {row['block_size']}",
            *(f"{row[kind]['ratio']:.2f}" for kind in kinds),
        )
        for row in found["rows"]
    ]
    columns = ("case", "width", "vocabulary", "tokens in documents", "blocks", *kinds)
    gap = max(row["gradients"] for row in found["rows"])
    return (
        "## A drafter's training step\n\nForward, loss, metrics and backward of one packed row, "
        f"{found['rows'][0]['layers']} layers, fp32, one thread, times as fast as the step of "
        f"speculators {found['speculators']} with the same weights, batch, anchors, loss. Hidden "
        f"states, loss and gradients agree (gradients to {gap:.0e}). Its labels come from the "
        "target's head in every step, ours from the text, so its step is timed with these logits "
        "given to it too; the last column is without any head. Its attention is SDPA with a dense "
        "mask, as its default, flex attention, has no backward on a CPU.\n\n"
        + _table(columns, rows)
    )


def import_time(found):
    """Starting."""
    rows = [(f"`{name}`", f"{seconds:.3f}") for name, seconds in found.items()]
    return "## Starting\n\n" + _table(("process", "median seconds"), rows)


SECTIONS = {
    "planning": planning,
    "ordering": ordering,
    "optimiser": optimiser,
    "scanning": scanning,
    "collating": collating,
    "sampling": sampling,
    "dflash_step": dflash_step,
    "import_time": import_time,
}

if __name__ == "__main__":
    main()
