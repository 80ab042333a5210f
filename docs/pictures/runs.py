"""Pictures of runs: how a step represents the data, where a run resumes, who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lengthwise as lw
from lengthwise.loader import BucketBatchSampler
from lengthwise.simulate import Machines, simulate, workload_of_batches
from pictures.canvas import Canvas
from pictures.lengths import batches, some

if TYPE_CHECKING:
    import numpy as np

LIMITS = lw.BatchLimits(max_tokens=16_384, max_batch_size=12)
GROUP = 8


def diversity() -> Canvas:
    """Mean length of each batch in the order of the run, and of every step of eight batches."""
    lengths = some(4_000)
    canvas = Canvas(760, 308, "Mean lengths of batches and of optimiser steps, by order")
    panels = (("shuffled", "order=shuffled"), ("balanced", "order=balanced (default)"))
    for place, (order, words) in enumerate(panels):
        plan = batches(lengths, LIMITS, "pooled", order=order, accumulation_steps=GROUP)
        means = plan.tokens / plan.sizes
        steps = len(plan) // GROUP
        x, width, base = 12 + place * 378, 360, 270
        canvas.text(x, 18, words, size=13, bold=True)

        def at(batch: float, x: float = x, steps: int = steps) -> float:
            return x + batch / (steps * GROUP) * 360

        def height(length: float, base: float = base) -> float:
            return base - length / 8192 * 236

        canvas.line([(x, base), (x + width, base)], "axis")
        for batch in range(steps * GROUP):
            canvas.dot(at(batch + 0.5), height(means[batch]), 1.7, "bar", 0.75)
        line = []
        for step in range(steps):
            part = slice(step * GROUP, (step + 1) * GROUP)
            mean = plan.tokens[part].sum() / plan.sizes[part].sum()
            line += [(at(step * GROUP), height(mean)), (at((step + 1) * GROUP), height(mean))]
        canvas.line(line, "series-2", width=2.5)
        canvas.line([(x, height(lengths.mean())), (x + width, height(lengths.mean()))], "ink",
                    dashed=True)  # fmt: skip
    canvas.dot(17, 293, 2.5, "bar")
    canvas.text(26, 297, "a batch", colour="muted")
    canvas.line([(96, 293), (116, 293)], "series-2", width=2.5)
    canvas.text(122, 297, "an optimiser step of 8 batches", colour="muted")
    canvas.line([(312, 293), (332, 293)], "ink", dashed=True)
    canvas.text(338, 297, "the data; upwards: mean length, 0 to 8,192 tokens", colour="muted")
    return canvas


def resume() -> Canvas:
    """An epoch on four replicas that is saved, and goes on with four and with two."""
    lengths = some(460)
    samplers = [BucketBatchSampler(lengths, max_tokens=16_384, rank=r, num_replicas=4)
                for r in range(4)]  # fmt: skip
    whole = [list(sampler) for sampler in samplers]
    done = 9
    saved = _state_after(lengths, done)
    canvas = Canvas(760, 292, "An epoch on four replicas, and its rest on four and on two")
    canvas.text(12, 18, "an epoch on 4 replicas", size=13, bold=True)
    _rows(canvas, 12, 28, whole, lengths)
    x = 12 + done * 22
    canvas.line([(x - 2, 24), (x - 2, 96)], "series-2", width=2.5)
    canvas.text(x - 2, 112, f"saved after step {done}", anchor="middle", size=11)
    for y, replicas in ((134, 4), (236, 2)):
        rest = []
        for rank in range(replicas):
            one = BucketBatchSampler(lengths, max_tokens=16_384, rank=rank, num_replicas=replicas)
            one.load_state_dict(saved)
            rest.append(list(one))
        same = (
            "the very batches that were left" if replicas == 4 else "the same batches, dealt anew"
        )
        canvas.text(x, y, f"resumed on {replicas}: {same}", size=13, bold=True)
        _rows(canvas, x, y + 10, rest, lengths)
    canvas.text(748, 18, "a cell is a batch; the stronger, the longer its samples", anchor="end",
                colour="muted")  # fmt: skip
    return canvas


def _state_after(lengths: np.ndarray, steps: int) -> dict[str, Any]:
    sampler = BucketBatchSampler(lengths, max_tokens=16_384, rank=0, num_replicas=4)
    running = iter(sampler)
    for _ in range(steps):
        next(running)
    return sampler.state_dict()


def _rows(
    canvas: Canvas, x: float, y: float, ranks: list[list[list[int]]], lengths: np.ndarray
) -> None:
    for rank, row in enumerate(ranks):
        for step, batch in enumerate(row):
            shade = 0.15 + 0.85 * float(lengths[batch].mean()) / 6000
            canvas.bar(x + step * 22, y + rank * 17, 19, 14, "series-1", min(shade, 1.0))


def pipeline() -> Canvas:
    """Two targets and a drafter at work, simulated, with the bytes that wait between them."""
    lengths = some(1_500)
    plan = batches(lengths, LIMITS, "pooled")
    work = workload_of_batches(
        plan,
        lw.StepTime(fixed_seconds=0.1, seconds_per_token=8e-5, seconds_per_token_squared=1e-8),
        lw.StepTime(fixed_seconds=0.25, seconds_per_token=3.4e-5),
        bytes_per_token=51_200,
        feed_seconds=0.05,
    )
    found = simulate(work, Machines(num_targets=2, channel_bytes=work.channel_bytes(6)))
    canvas = Canvas(760, 272, "Timelines of two targets and a drafter, and the channel's level")
    until = min(found.seconds, 26.0)
    left, width = 92, 650

    def at(seconds: float) -> float:
        return left + min(float(seconds), until) / until * width

    names = ("target 1", "target 2", "drafter")
    for row, name in enumerate(names):
        y = 26 + row * 38
        canvas.text(left - 10, y + 18, name, anchor="end")
        canvas.bar(left, y, width, 26, "track")
    runs, steps = found.arrivals, found.steps
    for begin, end, target in zip(runs.started, runs.ended, runs.target, strict=True):
        if begin < until:
            canvas.bar(at(begin), 26 + int(target) * 38, at(end) - at(begin) - 1, 26, "series-1")
    for begin, end in zip(steps.begun, steps.learnt, strict=True):
        if begin < until:
            canvas.bar(at(begin), 102, at(end) - at(begin) - 1, 26, "series-2")
    level, top = found.channel, int(found.channel.values.max())
    points = []
    for time, value in zip(level.times, level.values, strict=True):
        if time <= until:
            before = points[-1][1] if points else 222.0
            points += [(at(time), before), (at(time), 222 - value / top * 70)]
    canvas.text(left - 10, 190, "bytes that", anchor="end", colour="muted")
    canvas.text(left - 10, 205, "wait between", anchor="end", colour="muted")
    canvas.line([(left, 222), (left + width, 222)], "axis")
    canvas.line(points, "series-3", width=1.6)
    canvas.text(
        left, 244, f"the first {until:.0f} seconds; gaps are waits; the drafter is at "
        f"work {found.drafter_busy:.0%}, targets {found.target_busy:.0%} of the whole time",
        colour="muted",
    )  # fmt: skip
    return canvas
