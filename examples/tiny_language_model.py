"""Real samples and a small model, for the training examples: the standard library, byte by byte."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lengthwise.loader import PadCollator, token_weighted_loss
from stdlib_corpus import functions_of, source_files, standard_library

PAD = 256
"""One above the bytes."""
COLLATE = PadCollator(pad_token_id=PAD)


def samples(num_samples: int = 600, max_length: int = 400) -> list[dict[str, list[int]]]:
    """The first functions of the standard library, cut at ``max_length`` bytes."""
    rows: list[dict[str, list[int]]] = []
    for path in source_files(standard_library()):
        for _, text in functions_of(path.read_text(encoding="utf-8")):
            ids = list(text.encode()[:max_length])
            rows.append({"input_ids": ids, "labels": ids})
        if len(rows) >= num_samples:
            break
    return rows[:num_samples]


class TinyLanguageModel(nn.Module):
    """Predicts the next byte: one causal layer, 25,000 weights."""

    def __init__(self) -> None:
        """The same weights in every process."""
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(PAD + 1, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, PAD + 1)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Logits, shape (samples, length, bytes); padding is at the end, where nobody looks."""
        mask = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        return self.head(self.layer(self.embedding(input_ids), src_mask=mask, is_causal=True))


@torch.no_grad()
def loss_on(model: Any, rows: list[dict[str, list[int]]]) -> float:
    """Loss a byte over some samples."""
    batch = COLLATE(rows)
    return float(token_weighted_loss(model(batch["input_ids"]), batch["labels"], shift=True))


def run_options(description: str) -> argparse.Namespace:
    """What each example is asked on its command line."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    return options
