"""Our own trainer's step: rows, anchors, loss, one change of the weights."""

from __future__ import annotations

import numpy as np
import torch

from lengthwise.dflash.anchors import Anchors, draw_anchors
from lengthwise.dflash.batch import Sample, pack_rows, round_up, split_by_anchors
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import load_native, save_native
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.optimizer import OptimizerConfig, build_optimizer
from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.update import Update
from rivals.recipes import COMMON_RATE, Step, Value

PACKAGE = "lengthwise"
SETTINGS = (
    "rows packed to the longest sample, anchors a sample by seed and epoch, decay, AdamW at 6e-4, "
    "cosine, warm-up 4 %"
)
OPTIMIZERS = {
    "common": (OptimizerConfig(learning_rate=COMMON_RATE), ScheduleConfig()),
    "own": (OptimizerConfig(), ScheduleConfig()),
    "speculators": (
        OptimizerConfig(kind="muon", learning_rate=1e-3, weight_decay=0.1),
        ScheduleConfig(),
    ),
}
SHAPE = 64
"""Rows are as wide as a multiple of this, the default of ``step.shape_multiple``."""


class System:
    """A drafter and what changes it."""

    def __init__(self, folder, recipe, seed, total_steps):
        """Load or draw the first weights."""
        self.folder, self.seed = folder, seed
        self.ends = folder.ends()
        if recipe.start == "given":
            self.drafter = load_native(folder.start(seed))
        else:
            self.drafter = Drafter(folder.config, seed=seed)
        self.drafter.train()
        self.loss = LossConfig(recipe.weighting)
        optimizer, schedule = OPTIMIZERS[recipe.optimizer]
        self.update = Update(
            self.drafter,
            build_optimizer(self.drafter, optimizer),
            schedule,
            total_steps=total_steps,
        )

    def learn(self, examples):
        """One optimiser step."""
        samples = sorted((example.sample for example in examples), key=len)
        rows = pack_rows(samples, round_up(len(samples[-1]), SHAPE), multiple_of=SHAPE)
        anchors = draw_anchors(
            rows,
            max_anchors=self.folder.settings.max_anchors,
            seed=self.seed,
            epoch=self.update.num_steps,
        )
        sums = draft_step(self.drafter, self.ends, rows, anchors, self.loss)
        self.update.backward(sums, rows.sample_ids.tolist())
        sums = self.update.step().sums
        return Step(
            loss=sums.loss,
            labels=int(sums.valid.sum()),
            anchors=int(anchors.keep.sum()),
            tokens=sum(map(len, samples)),
            places=rows.input_ids.numel(),
        )

    def value(self, examples, places, weighting):
        """The loss at anchors ``places[d]`` of document d; all documents in one row."""
        samples = [example.sample for example in examples]
        rows = pack_rows(samples, self.folder.settings.row_tokens)
        columns = torch.tensor(in_row(samples, places))[None]
        anchors = Anchors(columns, torch.ones_like(columns, dtype=torch.bool))
        self.drafter.zero_grad()
        sums = draft_step(self.drafter, self.ends, rows, anchors, LossConfig(weighting))
        sums.loss_sum.backward()
        found = Value(
            reported=sums.loss,
            numerator=sums.loss_sum.item(),
            labels=int(sums.valid.sum()),
            gradient=gradient_norm(self.drafter),
        )
        self.drafter.zero_grad()
        return found

    def save(self, directory):
        """Write the drafter, every bit of it."""
        save_native(self.drafter, directory, None, torch.float32)


def in_row(samples, places):
    """Columns of anchors where the samples stand one after the other in a row."""
    columns, start = [], 0
    for sample, own in zip(samples, places, strict=True):
        columns += [start + place for place in own]
        start += len(sample)
    return columns


def gradient_norm(model):
    """Of all parameters together."""
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return torch.stack(norms).norm().item()


def attempts(folder):
    """What of it does not run here: nothing."""
    del folder
    return {}


def real_share(lengths):
    """Of the rows of steps of 8,192 anchors, at most 512 a sample: twenty random samples each.

    A pool mixes steps as well as chance does (``benchmarks/remix.py``), so chance draws them here.
    """
    drawn = np.random.default_rng(0).permutation(lengths)[: len(lengths) // 20 * 20]
    real = places = 0
    for step in drawn.reshape(-1, 20):
        samples = [_blank(length) for length in sorted(step.tolist())]
        for part in split_by_anchors(samples, 1024, 512):
            width = round_up(len(part[-1]), SHAPE)
            places += pack_rows(part, width, multiple_of=SHAPE).input_ids.numel()
        real += int(step.sum())
    return real / places


def _blank(length):
    """A sample of which only the length counts; half of it has labels."""
    mask = torch.arange(length) >= length // 2
    return Sample(0, torch.zeros(length, dtype=torch.long), mask, torch.zeros(length, 1))
