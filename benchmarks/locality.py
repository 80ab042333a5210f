"""What planning a few shards at a time costs in diversity, and what it spares in open shards.

The run's lengths lie in 256 shards, in two ways: any sample in any shard, and sorted by source, so
that every shard has lengths of its own kind. Plans of 1 to 64 shards a group, and of all.

    python benchmarks/locality.py       # writes the page's table and figure anew, from the result
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pages
from workloads import RUN_LIMITS, run_lengths

import lengthwise as lw
from lengthwise.core.diversity import design_effect, measure_diversity
from lengthwise.core.resharding import Segment, deal_rest
from lengthwise.report.plots import render_plot
from lengthwise.report.theme import DASHES, colour, frame

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "large-data.md"
FIGURE = ROOT / "docs" / "images" / "locality.svg"
NUM_SHARDS = 256
NUM_REPLICAS = 8
OTHERS = (4, 6, 12, 16)
"""Replicas that go on where 8 began."""
PER_GROUP = (1, 2, 4, 8, 16, 32, 64, None)
KINDS = {
    "pooled": {},
    "fixed": {"num_buckets": 16, "batch_sizing": "fixed"},
}
DRAWN = "by source, drawn at random"
NOISE = 0.5
"""Of the logarithm of length, by which samples are sorted into sources."""
LOOKS = {
    f"pooled, shards {DRAWN}": ("series-1", 3),
    "pooled, shards by source": ("series-1", 0),
    "pooled, shards alike": ("series-1", 1),
    f"fixed, shards {DRAWN}": ("series-3", 3),
    "fixed, shards by source": ("series-3", 0),
    "fixed, shards alike": ("series-3", 1),
}


def measure(quick):
    """A row for each way the samples lie, kind of plan, and number of shards a group."""
    rows = []
    for layout, lengths in layouts(40_000 if quick else None).items():
        for kind, fields in KINDS.items():
            for per_group in PER_GROUP[-3:] if quick else PER_GROUP:
                row = measure_one(lengths, fields, per_group, any_shards=layout == DRAWN)
                rows.append({"layout": layout, "kind": kind, **row})
                print(rows[-1], flush=True)
    changed = changes(run_lengths(40_000 if quick else None))
    return {
        "num_shards": NUM_SHARDS,
        "num_replicas": NUM_REPLICAS,
        "rows": rows,
        "changed": changed,
    }


def changes(lengths):
    """The second half of an epoch of fixed sizes on another number of replicas, and a whole one."""
    config = lw.BatchingConfig(limits=RUN_LIMITS, **KINDS["fixed"])
    planner = lw.Planner(lengths, config, num_replicas=NUM_REPLICAS)
    half = Segment(NUM_REPLICAS, planner.plan(0).num_steps // 2)
    rows = []
    for number in OTHERS:
        other = planner.with_replicas(number)
        rest = deal_rest(other, 0, [half]).batches(2)
        whole = other.plan(0).batches
        rows.append(
            {
                "num_replicas": number,
                "rest": design_effect(rest, lengths, number),
                "whole": design_effect(whole, lengths, number),
            }
        )
    return rows


def layouts(num_samples):
    """The same lengths, in any order and sorted by source; and so with groups of any shards."""
    alike = run_lengths(num_samples)
    noise = np.random.default_rng(1).normal(0, NOISE, alike.size)
    by_source = alike[np.argsort(np.log(alike) + noise, kind="stable")]
    return {"alike": alike, "by source": by_source, DRAWN: by_source}


def measure_one(lengths, fields, per_group, *, any_shards):
    """Two epochs: efficiency, diversity, and how many shards are needed at a time."""
    shards = np.array_split(lengths, NUM_SHARDS)
    config = lw.BatchingConfig(limits=RUN_LIMITS, shards_per_group=per_group, **fields)
    planner = lw.Planner(shards, config, num_replicas=NUM_REPLICAS)
    if any_shards:  # as if all shards were of one mean length, or nothing were known of them
        means = np.random.default_rng(2).random(planner.prepared.shard_means.size)
        planner.prepared = replace(planner.prepared, shard_means=means)
    batches, following = planner.plan(0).batches, planner.plan(1).batches
    found = measure_diversity(batches, lengths, next_batches=following, num_replicas=NUM_REPLICAS)
    steps = batches.tokens.reshape(-1, NUM_REPLICAS).sum(1)
    samples = batches.sizes.reshape(-1, NUM_REPLICAS).sum(1)
    shard_of = np.repeat(np.arange(NUM_SHARDS), [shard.size for shard in shards])
    needed = open_shards(batches, shard_of)
    return {
        "shards_per_group": per_group,
        "efficiency": int(batches.tokens.sum()) / int(batches.padded_tokens.sum()),
        "num_batches": len(batches),
        "repeat_rate": found.partner_repeat_rate,
        "design_effect": found.design_effect,
        "step_correlation": float(np.corrcoef((steps / samples)[:-1], (steps / samples)[1:])[0, 1]),
        "mean_open": float(needed.mean()),
        "most_open": int(needed.max()),
    }


def open_shards(batches, shard_of):
    """Shards needed at each step: from the first step that reads them to the last but one in 1,000.

    A few samples wait until their batch is full; the last 0.1 % of a shard's are not counted.
    """
    step_of_batch = np.arange(len(batches)) // NUM_REPLICAS
    steps = np.empty(shard_of.size, np.int64)
    rows = np.repeat(np.arange(len(batches)), batches.sizes)
    inside = np.arange(rows.size) - np.repeat(
        np.cumsum(batches.sizes) - batches.sizes, batches.sizes
    )
    steps[batches.order[batches.starts[rows] + inside]] = step_of_batch[rows]
    changes = np.zeros(step_of_batch[-1] + 2, np.int64)
    for shard in range(NUM_SHARDS):
        own = np.sort(steps[shard_of == shard])
        changes[own[0]] += 1
        changes[own[int(0.999 * (own.size - 1))] + 1] -= 1
    return np.cumsum(changes)[:-1]


def table(found):
    """The page's table."""
    columns = (
        "shards a group", "plan", "shards open: mean", "most", "efficiency", "repeat rate",
        "design effect: alike", "by source", "by source, drawn at random",
        "correlation of steps: by source", "drawn at random",
    )  # fmt: skip
    rows = {(r["layout"], r["kind"], r["shards_per_group"]): r for r in found["rows"]}
    lines = []
    for kind in KINDS:
        for per_group in PER_GROUP:
            alike, source, drawn = (
                rows[layout, kind, per_group] for layout in ("alike", "by source", DRAWN)
            )
            lines.append(
                (
                    per_group or "all (default)",
                    kind,
                    f"{source['mean_open']:.0f}",
                    source["most_open"],
                    f"{source['efficiency']:.3f}",
                    f"{source['repeat_rate']:.4f}",
                    short(alike["design_effect"]),
                    short(source["design_effect"]),
                    short(drawn["design_effect"]),
                    f"{source['step_correlation']:+.2f}",
                    f"{drawn['step_correlation']:+.2f}",
                )
            )
    return pages.table(columns, lines)


def changed_table(found):
    """What a change of replicas costs a plan of fixed sizes."""
    names = ("8 replicas, then", "design effect of the rest", "of an epoch begun so")
    lines = [(r["num_replicas"], short(r["rest"]), short(r["whole"])) for r in found["changed"]]
    return pages.table(names, lines)


def short(effect):
    """Three digits at most."""
    return "< 0.01" if effect < 0.01 else f"{effect:.2g}" if effect < 10 else f"{effect:,.0f}"


def plot(found):
    """Design effect of a step by shards a group."""
    rows = [
        {
            "label": f"{row['kind']}, shards {row['layout']}",
            "shards": row["shards_per_group"] or found["num_shards"],
            "effect": max(row["design_effect"], 1e-3),
        }
        for row in found["rows"]
    ]
    labels = list(LOOKS)
    legend = {
        "title": None,
        "orient": "top",
        "columns": 3,
        "labelLimit": 260,
        "symbolType": "stroke",
    }

    def by_label(values):
        scale = {"domain": labels, "range": values}
        return {"field": "label", "type": "nominal", "scale": scale, "legend": legend}

    x = {
        "field": "shards",
        "type": "quantitative",
        "title": "shards planned together (log scale)",
        "scale": {"type": "log", "base": 2, "domain": [1, found["num_shards"]]},
        "axis": {"values": [1, 4, 16, 64, 256], "format": "d", "grid": False},
    }
    y = {
        "field": "effect",
        "type": "quantitative",
        "title": "design effect of a step, 1 = random (log scale)",
        "scale": {"type": "log"},
        "axis": {"values": [0.001, 0.01, 0.1, 1, 10, 100, 1000], "format": "~g"},
    }
    look = {
        "color": by_label([colour(LOOKS[label][0]) for label in labels]),
        "strokeDash": by_label([DASHES[LOOKS[label][1]] for label in labels]),
    }
    layers = [
        {"mark": {"type": "rule", "color": colour("axis")}, "encoding": {"y": y | {"datum": 1}}},
        {"mark": {"type": "line", "strokeWidth": 1.75}, "encoding": {"x": x, "y": y} | look},
    ]
    del layers[0]["encoding"]["y"]["field"]
    return frame(rows, {"height": 340, "layer": layers})


def fill_page(found):
    """Put the table between the page's marks, and draw the figure."""
    pages.fill(PAGE, {"locality": table(found), "changed": changed_table(found)})
    FIGURE.write_text(render_plot(plot(found)), encoding="utf-8")


if __name__ == "__main__":
    RESULT = ROOT / "benchmarks" / "results" / "locality.json"
    fill_page(pages.result(RESULT))
