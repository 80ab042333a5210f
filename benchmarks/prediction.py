"""How near predictions come: predicted against measured tokens a second, on a CPU, one thread.

Three small models (attention-light, attention-heavy, recurrent) are trained on functions of
Python's standard library, under four strategies. An epoch of each is planned, and a cut of it that
represents the data is predicted batch by batch and trained on. What predicts it is a fit to steps
on a few shapes of random bytes. Measuring shapes and training on the strategies' batches take turns
in random order, so that what slows the machine for a while slows them alike, and all of it is done
several times over.
``docs/concepts/prediction.md`` reports the result.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
import training_data
from prediction_models import KINDS, Trainer, samples_of_shape

import lengthwise as lw
from lengthwise.calibrate import Measurement, choose_shapes, fit_cost
from lengthwise.calibrate.measurement import summarise_shapes
from lengthwise.predict import predict_plan

STRATEGIES = {
    "sorted": {"strategy": "sorted"},
    "random": {"strategy": "random"},
    "bucketed": {"num_buckets": 6},
    "pooled": {"strategy": "pooled"},
}
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
NUM_SHAPES = 48
"""How many shapes the fit rests on, each measured once a round. A shape's own time lies 3 to 8 %
off any smooth cost here, however often it is repeated, so shapes say more than repeats."""
FIT = ("cost", "relative_error", "shape_error", "noise", "misfit", "disturbance")
"""What is kept of a fit."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: batches of each strategy, rounds over them, one file in so many."""

    num_batches: int
    num_rounds: int
    every_file: int


FULL = Size(64, 22, 1)
QUICK = Size(8, 2, 24)


class Arm:
    """What takes turns: an epoch of one strategy, or the shapes to calibrate on."""

    def __init__(self, batches, num_rounds):
        """Keep the batches: lists of samples."""
        self.batches = batches
        self.seconds = {clock: np.zeros((num_rounds, len(batches))) for clock in CLOCKS}

    def run(self, trainer, number, place):
        """Train on one batch and keep what it took in this round."""
        started = [clock() for clock in CLOCKS.values()]
        trainer.step(self.batches[place])
        for (name, clock), start in zip(CLOCKS.items(), started, strict=True):
            self.seconds[name][number, place] = clock() - start


def keep_memory():
    """Have the C library keep freed memory, as CUDA's caching allocator does on a GPU.

    By default it hands large blocks back to the system after each use and asks for them anew: a
    fifth of a step's time here, and a share that depends on what ran before. jemalloc and tcmalloc,
    which PyTorch recommends for CPUs, do as this does.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


def measure(quick):
    """Every model and strategy, as plain values."""
    keep_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        corpus = training_data.collect(0, (QUICK if quick else FULL).every_file)
        return {name: compare(kind, corpus, quick, name) for name, kind in KINDS.items()}
    finally:
        torch.set_num_threads(threads)


def compare(kind, corpus, quick, name):
    """One model: predicted and measured tokens a second of every strategy, by both clocks."""
    size = QUICK if quick else FULL
    texts = [text for text in corpus.training if len(text) <= kind.longest]
    samples = training_data.Functions(texts)
    lengths = np.array([len(text) for text in texts])
    plans = {
        strategy: cut(lengths, kind.limits, settings, size.num_batches)
        for strategy, settings in STRATEGIES.items()
    }
    generator = np.random.default_rng(0)
    shapes = choose_shapes(kind.limits, lengths, NUM_SHAPES)
    whole = [samples_of_shape(*shape, generator) for shape in shapes]
    arms = {"shapes": Arm(whole, size.num_rounds + 1)}
    for strategy, plan in plans.items():
        batches = [[samples[index] for index in batch] for batch in plan]
        arms[strategy] = Arm(batches, size.num_rounds + 1)
    take_turns(Trainer(kind), arms, size.num_rounds + 1)
    found = {clock: _result(clock, arms, shapes, plans, lengths) for clock in CLOCKS}
    _print(name, found["cpu"])
    return found | {"num_samples": len(texts), "num_rounds": size.num_rounds}


def cut(lengths, limits, settings, num_batches):
    """So many batches of an epoch, which together have the data set's mean length, as a plan."""
    together = {"order": "balanced", "accumulation_steps": num_batches, "balance": "none"}
    config = lw.BatchingConfig(limits=limits, **settings, **together)
    plan = lw.build_plan(lengths, config)
    kept = np.arange(min(num_batches, plan.num_batches))
    return replace(plan, source=plan.batches.select(kept))


def take_turns(trainer, arms, num_rounds):
    """Run every batch of every arm once a round, all of them in random order."""
    turns = random.Random(0)
    for number in range(num_rounds):
        steps = [(arm, place) for arm in arms.values() for place in range(len(arm.batches))]
        turns.shuffle(steps)
        for arm, place in steps:
            arm.run(trainer, number, place)


def _result(clock, arms, shapes, plans, lengths):
    """Predictions beside measurements; the first round warms up and counts nothing."""
    fit = fit_cost(_measurements(shapes, arms["shapes"].seconds[clock][1:]))
    rows = {
        strategy: _row(plan, lengths, fit, arms[strategy].seconds[clock][1:])
        for strategy, plan in plans.items()
    }
    return {
        "strategies": rows,
        "largest_error": max(abs(row["error"]) for row in rows.values()),
        "swapped": swapped(rows),
        "fit": {key: value for key, value in fit.to_dict().items() if key in FIT},
    }


def _measurements(shapes, seconds):
    """Every timing of every shape; shapes (B, 2), seconds (R, B)."""
    return [
        Measurement(*map(int, shape), float(value))
        for row in seconds
        for shape, value in zip(shapes, row, strict=True)
    ]


def swapped(rows):
    """Pairs that the prediction ranks the other way round, and how far apart they measured."""
    return [
        {
            "slower": slow,
            "faster": fast,
            "apart": rows[fast]["measured"] / rows[slow]["measured"] - 1,
        }
        for slow, fast in itertools.permutations(rows, 2)
        if rows[slow]["measured"] < rows[fast]["measured"]
        and rows[slow]["predicted"] > rows[fast]["predicted"]
    ]


def _row(plan, lengths, fit, seconds):
    """One strategy: tokens a second, predicted and measured, and the noise of the latter.

    A measured run is the sum of its steps' times, each the mean of its repeats without those that
    something disturbed: what the fit does with the shapes.

    Args:
        plan: the epoch.
        lengths: tokens of each sample.
        fit: what a step costs.
        seconds: of each batch in each round, shape (R, B).
    """
    prediction = predict_plan(plan, lengths, fit)
    shapes = np.column_stack((plan.batches.sizes, plan.batches.padded))
    times = summarise_shapes(_measurements(shapes, seconds))
    measured = prediction.real_tokens * len(seconds) / float(times.seconds @ times.repeats)
    low, median, high = np.quantile(seconds.sum(axis=1), (0.25, 0.5, 0.75))
    return {
        "num_batches": plan.num_batches,
        "efficiency": prediction.efficiency,
        "predicted": prediction.tokens_per_second,
        "low": prediction.tokens_per_second_low,
        "high": prediction.tokens_per_second_high,
        "measured": measured,
        "median_round": prediction.real_tokens / median,
        "error": prediction.tokens_per_second / measured - 1,
        "noise": (high - low) / 2 / median,
        "parts": prediction.parts,
    }


def _print(name, found):
    print(f"{name}: within {found['largest_error']:.1%}, swapped: {found['swapped'] or 'none'}")
    for strategy, row in found["strategies"].items():
        print(
            f"  {strategy:9} predicted {row['predicted']:8,.0f} measured {row['measured']:8,.0f} "
            f"tokens/s, {row['error']:+.1%}, half of the rounds within ±{row['noise']:.1%}"
        )


if __name__ == "__main__":
    measure(quick=True)
