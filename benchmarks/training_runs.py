"""Training runs of several strategies beside each other, some batches of each in turn."""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass, field
from itertools import chain, islice

import numpy as np
import torch
from tiny_transformer import TinyTransformer
from torch.utils.data import DataLoader
from training_data import Functions

import lengthwise as lw
from lengthwise.loader import BucketBatchSampler, PadCollator, count_tokens, token_weighted_loss

LIMITS = lw.BatchLimits(max_tokens=4096, max_batch_size=32)
ARMS = {
    "sorted": ({"strategy": "sorted"}, 1),
    "bucketed": ({"strategy": "bucketed", "num_buckets": 6}, 1),
    "windowed": ({"strategy": "windowed", "window_size": 256}, 1),
    "pooled": ({"strategy": "pooled"}, 1),
    "random": ({"strategy": "random"}, 1),
    "random_pairs": ({"strategy": "random"}, 2),
}
"""Settings, and batches an optimiser step: two random ones hold about as many real tokens as one
of the others, which tells the batches' composition from the number of steps."""
LEARNING_RATE = 4e-3


@dataclass(slots=True)
class Record:
    """What a run has done so far; the clocks stand still between its turns."""

    num_batches: int = 0
    num_steps: int = 0
    num_samples: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)


class Learning:
    """A small transformer that learns, and the record of it."""

    def __init__(self, num_batches, seed):
        """Fresh weights of the seed."""
        self.num_batches = num_batches
        torch.manual_seed(seed)
        self.model = TinyTransformer()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.01)
        self.record = Record()

    def train_until(self, share):
        """Train until this share of the run's batches is done; collating is in the clocks."""
        wall, cpu = time.perf_counter(), time.process_time()
        while self.record.num_batches < round(share * self.num_batches):
            self.step()
        self.record.cpu_seconds += time.process_time() - cpu
        self.record.wall_seconds += time.perf_counter() - wall

    def update(self, num_tokens, progress):
        """Change the weights, at the rate of how far the run is; a step of so many real tokens."""
        self.record.real_tokens += int(num_tokens)
        self.record.num_steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self, batches):
        """Add a point to the curve: held-out nats a byte."""
        self.record.curve.append(
            {
                "real_tokens": self.record.real_tokens,
                "cpu_seconds": self.record.cpu_seconds,
                "loss": held_out_loss(self.model, batches),
            }
        )


class Run(Learning):
    """A model trained on one cut of an epoch, step by step.

    The cut is a part of the epoch of ``num_samples`` samples, chosen by ``order="balanced"`` so
    that every strategy's has the data's mean length; inside it batches come in random order.
    """

    def __init__(self, lengths, texts, settings, *, batches_a_step=1, num_samples, seed):
        """Plan, and make fresh weights of the seed."""
        shuffled = lw.BatchingConfig(limits=LIMITS, seed=seed, **settings)
        whole = lw.build_plan(lengths, shuffled).num_batches
        steps = max(2, round(whole * num_samples / len(lengths) / batches_a_step))
        super().__init__(steps * batches_a_step, seed)
        if self.num_batches > whole:
            raise ValueError(f"{self.num_batches} batches wanted of an epoch of {whole}")
        cut = {"order": "balanced", "accumulation_steps": self.num_batches, "balance": "none"}
        config = lw.BatchingConfig(limits=LIMITS, seed=seed, **settings, **cut)
        self.sampler = BucketBatchSampler(lengths, config=config, plan_ahead=False)
        collate = PadCollator.for_sampler(self.sampler)
        loader = DataLoader(Functions(texts), batch_sampler=self.sampler, collate_fn=collate)
        batches = islice(loader, self.num_batches)
        first = next(batches)  # the epoch is planned here, outside the clocks
        self.batches_a_step = batches_a_step
        self.batches = chain([first], batches)

    def step(self):
        """Learn from the next batches together."""
        batches = list(islice(self.batches, self.batches_a_step))
        num_tokens = sum(count_tokens(batch["labels"]) for batch in batches)
        for batch in batches:
            logits = self.model(batch["input_ids"])
            token_weighted_loss(logits, batch["labels"], num_tokens).backward()
            self.record.num_batches += 1
            self.record.num_samples += len(batch["labels"])
            self.record.padded_tokens += batch["labels"].numel()
        self.update(num_tokens, self.record.num_batches / self.num_batches)


def learning_rate(progress):
    """Up over the first tenth of the run, then straight down to a tenth of the peak."""
    return LEARNING_RATE * min(10 * progress, 1 - 0.9 * max(0.0, (progress - 0.1) / 0.9))


def held_out_batches(texts):
    """The held-out functions, padded, each in one batch."""
    lengths = [len(text) for text in texts]
    sampler = BucketBatchSampler(lengths, max_tokens=LIMITS.max_tokens, strategy="sorted")
    return list(DataLoader(Functions(texts), batch_sampler=sampler, collate_fn=PadCollator()))


@torch.no_grad()
def held_out_loss(model, batches):
    """Nats a byte over all batches together."""
    num_tokens = sum(count_tokens(batch["labels"]) for batch in batches)
    return float(
        sum(
            token_weighted_loss(model(batch["input_ids"]), batch["labels"], num_tokens)
            for batch in batches
        )
    )


def compare(corpus, num_samples, num_rounds, num_evaluations, seed):
    """All strategies from the same initial weights; each arm's record as a dict.

    A round gives every strategy one turn. Turns are short and their order in a round is random, so
    that what slows the machine for a while slows all strategies alike.
    """
    torch.set_num_threads(1)
    lengths = corpus.lengths
    runs = {
        name: Run(
            lengths,
            corpus.training,
            settings,
            batches_a_step=batches_a_step,
            num_samples=num_samples,
            seed=seed,
        )
        for name, (settings, batches_a_step) in ARMS.items()
    }
    held_out = held_out_batches(corpus.held_out)
    turns = random.Random(seed)
    every = num_rounds // num_evaluations
    for turn in range(1, num_rounds + 1):
        for run in turns.sample(list(runs.values()), len(runs)):
            run.train_until(turn / num_rounds)
            if turn % every == 0:
                run.evaluate(held_out)
    return {name: asdict(run.record) for name, run in runs.items()}


def num_parameters():
    """Of the model."""
    return sum(parameter.numel() for parameter in TinyTransformer().parameters())


def take_batches(run, num_batches, seed):
    """Batches of the run's epoch that it has not trained on, drawn at random: sample indices."""
    batches = run.sampler.planner.plan(0).batches
    rest = np.arange(run.num_batches, len(batches))
    rng = np.random.default_rng(seed)
    return batches.select(rng.choice(rest, min(num_batches, rest.size), replace=False))
