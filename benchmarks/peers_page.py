"""The measured parts of docs/concepts/peers.md and the README, from the result file.

python benchmarks/peers_page.py     # writes them anew; `make bench` does so too
"""

from __future__ import annotations

from pathlib import Path

import pages
from pages import table

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "peers.json"
PAGE = ROOT / "docs" / "concepts" / "peers.md"
README = ROOT / "README.md"
TITLES = {
    "run": "The run's distribution (synthetic, from published statistics)",
    "stdlib": "Functions of Python's standard library, in bytes (real)",
    "speech": "Speech-like, bimodal (generated)",
    "protein": "Protein-like (generated)",
    "chat": "Chat-like, a long tail (generated)",
}
IN_README = (
    "pooled",
    "six",
    "lhotse",
    "speechbrain",
    "fairseq",
    "grouped_mean",
    "rebalance",
    "trl",
)


def ran(rows):
    """Rows that have numbers."""
    return {name: row for name, row in rows.items() if "error" not in row}


def over(row):
    """Share of batches over the budget, and the worst of them."""
    return f"{row['over_share']:.1%}, up to {row['over_worst']:.2f} x" if row["over_share"] else "0"


def small(value):
    """Three digits, also of small numbers."""
    return "< 0.0001" if 0 <= value < 1e-4 else f"{value:.4f}" if value < 0.1 else f"{value:.3g}"


def efficiency(row):
    return "no padding" if row["about"]["packed"] else f"{row['efficiency']:.4f}"


def speed(row, rows):
    """Planning time as a multiple of the default's, a sample."""
    return times(rows["pooled"]["samples_per_second"] / row["samples_per_second"])


def times(ratio):
    """A ratio with as many digits as it deserves."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"


def label(name, row, found):
    """The arm's name, with its number of samples where it had fewer."""
    few = row["about"]["most_samples"]
    return found["labels"][name] + (f" ({few:,} samples)" if few else "")


def batches(found, dataset):
    """What the batches are like."""
    rows = ran(found["datasets"][dataset]["rows"])
    columns = (
        "batches by", "efficiency", "utilization", "over the budget", "batches", "left out",
        "repeat rate", "order correlation", "design effect",
    )  # fmt: skip
    lines = [
        (
            label(name, row, found),
            efficiency(row),
            f"{row['utilization']:.4f}",
            over(row),
            f"{row['num_batches']:,}",
            f"{row['left_out']:,}",
            f"{row['repeat_rate']:.6f}",
            f"{row['order_correlation']:+.2f}",
            small(row["design_effect"]),
        )
        for name, row in rows.items()
    ]
    return table(columns, lines)


def operations(found, dataset):
    """Speed, memory, replicas and resuming."""
    rows = ran(found["datasets"][dataset]["rows"])
    columns = (
        "batches by", "time a sample, default = 1", "bytes a sample", "balance, 8", "balance, 64",
        "with attention, 8", "equal steps", "resumes by", "in, default = 1", "exactly",
    )  # fmt: skip
    base = rows["pooled"]["resume"]["seconds"]
    lines = [
        (
            label(name, row, found),
            speed(row, rows),
            f"{row['bytes_per_sample']:,.0f}",
            *(_balance(row[f"replicas_{count}"]["balance"]) for count in (8, 64)),
            _balance(row["replicas_8"].get("attention_balance")),
            _equal(row),
            row["resume"]["kind"],
            times(row["resume"]["seconds"] / base),
            "yes" if row["resume"]["exact"] else "no",
        )
        for name, row in rows.items()
    ]
    return table(columns, lines)


def _balance(ratio):
    return "" if ratio is None else f"{ratio:.3f}"


def _equal(row):
    found = [row[f"replicas_{count}"] for count in (8, 64)]
    if all(replicas["equal"] for replicas in found):
        return "yes"
    return "no: " + ", ".join("{} to {}".format(*replicas["steps"]) for replicas in found)


def data(found):
    """The data sets and limits."""
    columns = ("data", "samples", "mean", "longest", "max_tokens", "max_batch_size", "sizes")
    lines = [
        (
            TITLES[name],
            f"{about['num_samples']:,}",
            f"{about['mean_length']:.0f}",
            f"{about['longest']:,}",
            f"{about['max_tokens']:,}",
            about["max_batch_size"],
            f"{about['safe_size']}, {about['mean_size']}",
        )
        for name, about in found["datasets"].items()
    ]
    return table(columns, lines)


def settings(found):
    """Versions, settings and where they come from."""
    rows = ran(found["datasets"]["run"]["rows"])
    columns = ("peer", "version", "settings", "their source", "on several replicas")
    lines = [
        (
            found["labels"][name],
            f"{row['about']['package']} {row['version']}",
            row["about"]["settings"],
            row["about"]["source"],
            row["about"]["dealing"] or "its own ranks",
        )
        for name, row in rows.items()
    ]
    return table(columns, lines)


def missing(found):
    """Peers that did not run, with the error."""
    lines = [
        (found["labels"][arm], TITLES[name], f"`{row['error']}`")
        for name, about in found["datasets"].items()
        for arm, row in about["rows"].items()
        if "error" in row
    ]
    return table(("peer", "data", "error"), lines) if lines else "All of them ran on all data."


def parts(found):
    """Each part of docs/concepts/peers.md by its mark."""
    names = found["datasets"]
    sections = [f"### {TITLES[name]}\n\n{batches(found, name)}" for name in names]
    return {
        "data": data(found),
        "settings": settings(found),
        "missing": missing(found),
        "batches": "\n\n".join(sections),
        "operations": operations(found, "run"),
    }


def short(found):
    """The README's table: the run's distribution, some peers."""
    rows = found["datasets"]["run"]["rows"]
    columns = (
        "batches by", "efficiency", "over the budget", "batches", "repeat rate",
        "planning time, default = 1", "resumes",
    )  # fmt: skip
    lines = [
        (
            found["labels"][name],
            efficiency(rows[name]),
            over(rows[name]),
            f"{rows[name]['num_batches']:,}",
            f"{rows[name]['repeat_rate']:.6f}",
            speed(rows[name], rows),
            f"by {rows[name]['resume']['kind']}",
        )
        for name in IN_README
        if "error" not in rows[name]
    ]
    return table(columns, lines)


def fill_page(found):
    """Put each part between its marks."""
    pages.fill(PAGE, parts(found))
    pages.fill(README, {"table:peers": short(found)})


if __name__ == "__main__":
    fill_page(pages.result(RESULT))
