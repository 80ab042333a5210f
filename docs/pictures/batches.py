"""Pictures of batches: what is padded, where boundaries lie, how wide a batch is in length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import lengthwise as lw
from pictures.canvas import Canvas
from pictures.lengths import BOUNDARIES, HISTOGRAM, batches, some

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches

LIMITS = lw.BatchLimits(max_tokens=16_384, max_batch_size=12)


def padding() -> Canvas:
    """The first batches of three plans, sample by sample, padding in grey."""
    lengths = some(20_000)
    canvas = Canvas(760, 398, "Batches of random, bucketed and pooled plans: tokens and padding")
    panels = (("random", "random"), ("bucketed", "six best buckets"), ("pooled", "pool (default)"))
    for place, (strategy, words) in enumerate(panels):
        plan = batches(lengths, LIMITS, strategy)
        share = plan.tokens.sum() / plan.padded_tokens.sum()
        x = 12 + place * 252
        canvas.text(x, 18, words, size=13, bold=True)
        canvas.text(x, 35, f"{share:.0%} of the tokens are real", colour="muted")
        _stack(canvas, x, 46, plan, lengths)
    for x, colour, words in ((12, "series-1", "a sample's tokens"), (152, "bar", "padding")):
        canvas.bar(x, 380, 12, 10, colour, 0.35 if colour == "bar" else 1.0)
        canvas.text(x + 18, 389, words, colour="muted")
    canvas.text(270, 389, "a block is a batch, a line a sample; all of one scale", colour="muted")
    return canvas


def _stack(canvas: Canvas, x: float, y: float, plan: Batches, lengths: npt.NDArray) -> None:
    for number in range(len(plan)):
        members = np.sort(lengths[plan.batch(number)])[::-1]
        height = 5 * len(members) + 9
        if y + height > 372:
            return
        for length in members:
            canvas.bar(x, y, int(plan.padded[number]) / 5200 * 236, 4, "bar", 0.35)
            canvas.bar(x, y, int(length) / 5200 * 236, 4, "series-1")
            y += 5
        y += 9


def boundaries() -> Canvas:
    """The run's lengths, cut at the six best boundaries, with each bucket's efficiency."""
    hist = lw.load_histogram(HISTOGRAM)
    limits = lw.BatchLimits(max_tokens=49_152, max_batch_size=64)
    found = lw.evaluate_boundaries(hist, limits, BOUNDARIES)
    canvas = Canvas(760, 300, "Lengths of the DFlash run with the six best bucket boundaries")
    edges = np.arange(0, 8193, 64)
    counts = np.add.reduceat(np.bincount(hist.lengths, hist.counts, 8192), edges[:-1])
    left, width, base, tall = 14, 732, 236, 190

    def at(length: float) -> float:
        return left + length / 8192 * width

    for lo, count in zip(edges, counts, strict=False):
        bucket = int(np.searchsorted(BOUNDARIES, lo, side="right")) - 1
        height = count / counts.max() * tall
        colour = "series-1" if bucket % 2 == 0 else "series-2"
        canvas.bar(at(lo), base - height, width / 128 - 0.8, height, colour, 0.75)
    for edge in BOUNDARIES:
        canvas.line([(at(edge), base - tall), (at(edge), base + 8)], "ink", dashed=True)
        ends = {0: "start", 8192: "end"}
        canvas.text(at(edge), base + 22, f"{edge:,}", anchor=ends.get(edge, "middle"), size=11)
    for place, bucket in enumerate(found.buckets):
        middle = (at(bucket.lo) + at(min(bucket.hi, 8192))) / 2
        y = 14 + 15 * (place % 2)
        canvas.text(middle, y, f"{bucket.efficiency:.0%}", anchor="middle", bold=True)
    canvas.text(
        left, base + 44,
        f"samples by length, in tokens; above, the share of real tokens in each bucket; "
        f"all buckets: {found.efficiency:.1%}", colour="muted",
    )  # fmt: skip
    canvas.line([(left, base), (left + width, base)], "axis")
    return canvas


def pool() -> Canvas:
    """The range of lengths of every batch, under four strategies that renew batches."""
    lengths = some(6_000)
    panels = (
        ("random", "random", {}),
        ("bucketed", "six best buckets", {}),
        ("windowed", "windows of 1,024", {"window_size": 1024}),
        ("pooled", "pool (default)", {}),
    )
    canvas = Canvas(760, 330, "From the shortest to the longest sample of each batch")
    for place, (strategy, words, choices) in enumerate(panels):
        plan = batches(lengths, LIMITS, strategy, **choices)
        spans = np.array([[lengths[plan.batch(b)].min(), plan.padded[b]] for b in range(len(plan))])
        spans = spans[np.argsort(spans.sum(axis=1), kind="stable")]
        x, step = 12 + place * 189, 250 / len(spans)
        canvas.text(x, 18, words, size=13, bold=True)
        share = plan.tokens.sum() / plan.padded_tokens.sum()
        canvas.text(x, 34, f"{share:.1%} real", colour="muted")
        canvas.line([(x, 296), (x + 174, 296)], "axis")
        for number, (shortest, longest) in enumerate(spans):
            y = 292 - number * step
            width = max((longest - shortest) / 6600 * 174, 1.2)
            canvas.bar(x + shortest / 6600 * 174, y - step, width, max(step * 0.8, 0.5), "series-1")
    canvas.text(
        12, 318, "a line is a batch, from its shortest to its longest sample, 0 to 6,600 tokens; "
        "wider lines are more padding and more mixing", colour="muted",
    )  # fmt: skip
    return canvas
