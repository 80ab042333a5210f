"""The speed of the default beside that of frozen sorted batches, where the machine is not quiet.

The runs' own clocks vary by some percent with whatever else the machine does. Here every batch is
trained on several times and its least time counts, which other programs can only have raised.
"""

from __future__ import annotations

import random
import time

import torch
from training_data import Functions
from training_runs import ARMS, Run

from lengthwise.loader import PadCollator, token_weighted_loss

CLOCKS = {"cpu_seconds": time.process_time, "wall_seconds": time.perf_counter}


def least_times(corpus, num_samples, num_repeats, seed):
    """Real tokens and least seconds over the batches of one cut, of sorted and of the default.

    Loading, collating and the optimiser's step are in the times. The two take turns batch by batch,
    in random order.
    """
    torch.set_num_threads(1)
    turns = random.Random(seed)
    samples = Functions(corpus.training)
    names = ("sorted", "pooled")
    runs = {
        name: Run(
            corpus.lengths, corpus.training, ARMS[name][0], num_samples=num_samples, seed=seed
        )
        for name in names
    }
    batches = {name: list(run.sampler)[: run.num_batches] for name, run in runs.items()}
    found = {name: {"real_tokens": 0} | dict.fromkeys(CLOCKS, 0.0) for name in names}
    for place in range(max(map(len, batches.values()))):
        present = [name for name in names if place < len(batches[name])]
        times = {name: [] for name in present}
        for _ in range(num_repeats):
            for name in turns.sample(present, len(present)):
                times[name].append(_timed(runs[name], samples, batches[name][place]))
        for name, measured in times.items():
            found[name]["real_tokens"] += int(corpus.lengths[batches[name][place]].sum())
            for clock, seconds in zip(CLOCKS, zip(*measured, strict=True), strict=True):
                found[name][clock] += min(seconds)
    return found


def _timed(run, samples, indices):
    """Seconds of one training step by each clock."""
    started = [clock() for clock in CLOCKS.values()]
    batch = PadCollator()([samples[index] for index in indices])
    token_weighted_loss(run.model(batch["input_ids"]), batch["labels"]).backward()
    run.optimizer.step()
    run.optimizer.zero_grad()
    return [clock() - start for clock, start in zip(CLOCKS.values(), started, strict=True)]
