"""The measured parts of docs/concepts/pipeline.md, from the result file.

python benchmarks/pipeline_page.py     # writes them anew; `make bench` does so too
"""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

import pages
from pages import table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "concepts" / "pipeline.md"
ORIGINAL = {"random": "0.37", "six published buckets": "0.78"}
"""Throughput of the run this project began with, over that of sorted batches."""


def parts(found):
    """Each part of the page by its mark, but that of real models."""
    return {
        "throughput": _overheads(found["imitated"]),
        "strategies": f"{_strategies(found)}\n\n{_functions(found)}",
    }


def _overheads(rows):
    text = (
        "Imitated devices, which need no core: a batch or step takes a fixed time a token. "
        "*Share* is the throughput over that of the slowest stage alone."
    )
    columns = (
        "targets + ranks", "epochs", "alone, s: targets", "alone, s: ranks", "share",
        "whole run, s", "until the first step, s", "after the last batch, s",
    )  # fmt: skip
    lines = [
        (
            f"{row['workers']} + {row['ranks']}",
            row["epochs"],
            f"{row['target']['alone_seconds']:.1f}",
            f"{row['drafter']['alone_seconds']:.1f}",
            f"{100 * row['share']:.1f} %",
            f"{row['whole_seconds']:.1f}",
            f"{row['fill_seconds']:.1f}",
            f"{row['drain_seconds']:.1f}",
        )
        for row in rows
    ]
    return f"{_wrapped(text)}\n\n{table(columns, lines)}"


def real(found):
    """The part about real models, in words."""
    slowest, rounds = found["slowest"], found["rounds"]
    other = {"target": "drafter", "drafter": "target"}[slowest]
    alone, beside, span = (found[f"{slowest}_{how}"] for how in ("alone", "beside", "span"))
    least, most = (pick(row[f"{slowest}_alone"] for row in rounds) for pick in (min, max))
    return _wrapped(
        f"Small real models, one target worker and one rank, each on a core of this machine: the "
        f"{slowest} is the slower one. Its bare loop takes {alone:.2f} s alone, {beside:.2f} s "
        f"while the {other}'s bare loop runs on the other core, in a process that has nothing to "
        f"do with it, and {span:.2f} s in the pipeline, where it is at work "
        f"{100 * found['busy_share']:.1f} % of the time. So it keeps {100 * found['share']:.1f} % "
        f"of its pace alone and {100 * found['share_beside']:.1f} % of that beside the other. "
        f"(Medians of {len(rounds)} rounds, in which the same loop alone took {least:.1f} to "
        f"{most:.1f} s.)"
    )


def _strategies(found):
    rows = found["strategies"]
    text = (
        f"On {found['num_lengths']:,} lengths of the run this project began with, in batches of "
        "49,152 tokens, with an imitated target that costs what its padded tokens cost. The "
        "design effect is of length, of a step of 32,768 anchors: drawn from the pool, and of "
        "whole batches, shuffled. (So few samples are one or two windows of the recommended "
        "strategy, and a dozen steps. Over all of the run's 902,087 its efficiency is 99.6 % and "
        "the design effect of a step 1.08: [DFlash](dflash.md) has the table of pools.)"
    )
    columns = (
        "strategy", "throughput over sorted", "the original run", "efficiency", "share",
        "design effect", "of whole batches",
    )  # fmt: skip
    lines = [
        (
            f"**{name}**" if name == "recommended" else name,
            f"{row['ratio_to_sorted']:.3f}",
            ORIGINAL.get(name, ""),
            f"{100 * row['efficiency']:.1f} %",
            f"{100 * row['share']:.1f} %",
            f"{row['design_effect']:.2f}",
            f"{row['design_effect_without_pool']:.1f}",
        )
        for name, row in rows.items()
    ]
    return f"{_wrapped(text)}\n\n{table(columns, lines)}"


def _functions(found):
    ratios = ", ".join(
        f"{name} {row['ratio_to_sorted']:.2f} (design effect {row['design_effect']:.2f})"
        for name, row in found["real_strategies"].items()
        if name != "sorted"
    )
    return _wrapped(
        f"With small real models on functions of the standard library, few and short, so that a "
        f"batch costs more than its tokens: {ratios}."
    )


def _wrapped(text):
    return "\n".join(wrap(text, 100))


def fill_page(found):
    """Put each part between its marks."""
    pages.fill(PAGE, parts(found))


def fill_real(found):
    """The same for real models."""
    pages.fill(PAGE, {"real": real(found)})


def read(name):
    """A result that was written before."""
    return pages.result(Path(RESULTS, f"{name}.json"))


if __name__ == "__main__":
    fill_page(read("pipeline_throughput"))
    fill_real(read("pipeline_real"))
