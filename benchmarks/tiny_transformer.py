"""A small causal transformer over bytes: a quarter of a million parameters, for the CPU."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

BEGIN = 256
"""The token before the first byte, so that every byte is predicted."""


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each behind its norm, added to the input."""

    def __init__(self, width, num_heads, feed_factor):
        """Fresh weights."""
        super().__init__()
        self.num_heads = num_heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.before_feed = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, feed_factor * width, bias=False)
        self.feed_out = nn.Linear(feed_factor * width, width, bias=False)

    def forward(self, states, sizes=None):
        """States in, states out; shape (samples, tokens, width).

        With ``sizes`` there is one row of samples laid end to end, each of which sees itself only.
        """
        heads = self.query_key_value(self.before_attention(states))
        heads = heads.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        # Padding is on the right, so a causal mask is all that keeps it from real tokens.
        parts = [heads] if sizes is None else heads.split(sizes, dim=3)
        mixed = torch.cat(
            [functional.scaled_dot_product_attention(*part, is_causal=True) for part in parts],
            dim=2,
        )
        states = states + self.mix(mixed.transpose(1, 2).flatten(2))
        return states + self.feed_out(functional.relu(self.feed_in(self.before_feed(states))))


class TinyTransformer(nn.Module):
    """Logits of the next byte.

    Args:
        width: of the states.
        num_layers: blocks.
        num_heads: of attention.
        longest: tokens of the longest sample.
        feed_factor: width of the feed-forward layer, in widths of the states.
    """

    def __init__(self, width=96, num_layers=2, num_heads=3, longest=768, feed_factor=4):
        """Fresh weights, from torch's global generator."""
        super().__init__()
        self.embedding = nn.Embedding(BEGIN + 1, width)
        nn.init.normal_(self.embedding.weight, std=0.05)  # also the output layer: small logits
        self.blocks = nn.ModuleList(Block(width, num_heads, feed_factor) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("waves", _waves(longest, width), persistent=False)

    def forward(self, input_ids, sizes=None):
        """Token ids, shape (samples, tokens), to logits, shape (samples, tokens, 257).

        With ``sizes``, a list of the samples' lengths, ``input_ids`` is one row of them all.
        """
        waves = [self.waves[:size] for size in sizes or [input_ids.shape[1]]]
        states = self.embedding(input_ids) + torch.cat(waves)
        for block in self.blocks:
            states = block(states, sizes)
        return functional.linear(self.norm(states), self.embedding.weight)


def _waves(longest, width):
    """Positions as sines and cosines, scaled to the embedding's size; (longest, width)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angles = torch.arange(longest)[:, None] * rates
    return 0.05 * torch.cat((angles.sin(), angles.cos()), dim=1)
