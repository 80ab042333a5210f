"""Three small models whose steps take their time in three ways, and a training step of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from tiny_transformer import BEGIN, TinyTransformer
from torch import nn
from torch.nn import functional

import lengthwise as lw
from lengthwise.loader import PadCollator, token_weighted_loss

if TYPE_CHECKING:
    from collections.abc import Callable


class TinyRecurrent(nn.Module):
    """Logits of the next byte from a GRU: one small product for each position, all after another.

    Args:
        width: of the states.
    """

    def __init__(self, width):
        """Fresh weights, from torch's global generator."""
        super().__init__()
        self.embedding = nn.Embedding(BEGIN + 1, width)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.layer = nn.GRU(width, width, batch_first=True)

    def forward(self, input_ids):
        """Token ids, shape (samples, tokens), to logits, shape (samples, tokens, 257)."""
        states, _ = self.layer(self.embedding(input_ids))
        return functional.linear(states, self.embedding.weight)


@dataclass(frozen=True, slots=True)
class Kind:
    """A model and the data that it is trained on.

    Attributes:
        build: fresh weights.
        limits: of a batch.
        longest: bytes of the longest sample; longer ones are left out.
    """

    build: Callable[[], nn.Module]
    limits: lw.BatchLimits
    longest: int


KINDS = {
    "attention-light": Kind(
        lambda: TinyTransformer(48, num_layers=1, num_heads=1, longest=192, feed_factor=16),
        lw.BatchLimits(1024, 32),
        192,
    ),
    "attention-heavy": Kind(
        lambda: TinyTransformer(32, num_layers=1, num_heads=4, longest=512, feed_factor=1),
        lw.BatchLimits(1024, 32),
        512,
    ),
    "recurrent": Kind(lambda: TinyRecurrent(32), lw.BatchLimits(1024, 32), 256),
}


class Trainer:
    """One model in training: a step takes samples, pads them, learns from them."""

    def __init__(self, kind, seed=0):
        """Fresh weights of the seed."""
        torch.manual_seed(seed)
        self.model = kind.build()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.collate = PadCollator()

    def step(self, samples):
        """One training step on a list of samples."""
        batch = self.collate(samples)
        token_weighted_loss(self.model(batch["input_ids"]), batch["labels"]).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def samples_of_shape(batch_size, longest, generator):
    """Samples of random bytes, all of one length: what a step is calibrated on."""
    ids = generator.integers(0, BEGIN, (batch_size, longest + 1))
    return [{"input_ids": row[:-1], "labels": row[1:]} for row in np.asarray(ids, np.int64)]
