"""A plan behind a plain PyTorch DataLoader, one process; the loss weighs every token the same.

python examples/03_data_loader.py
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from lengthwise.loader import BucketBatchSampler, TokenWeightedLoss
from tiny_language_model import COLLATE, TinyLanguageModel, loss_on, samples

ACCUMULATION_STEPS = 4
"""Batches an optimiser step takes, so that it sees short and long samples alike."""


def main() -> None:
    """One epoch."""
    data = samples()
    sampler = BucketBatchSampler(
        [len(row["input_ids"]) for row in data],
        max_tokens=4096,
        accumulation_steps=ACCUMULATION_STEPS,
    )
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=COLLATE)
    model = TinyLanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_function = TokenWeightedLoss(shift=True)

    before = loss_on(model, data[:50])
    micro_batches = []
    for batch in loader:
        micro_batches.append(batch)
        if len(micro_batches) == ACCUMULATION_STEPS:
            loss_function.begin_step(one["labels"] for one in micro_batches)
            for one in micro_batches:
                loss_function(model(one["input_ids"]), one["labels"]).backward()
            optimizer.step()
            optimizer.zero_grad()
            micro_batches.clear()
    after = loss_on(model, data[:50])
    print(f"{len(sampler)} batches; loss {before:.3f} before, {after:.3f} after one epoch")
    assert after < before


if __name__ == "__main__":
    main()
