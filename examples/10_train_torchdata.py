"""Train with torchdata's StatefulDataLoader, and resume with the very next batch.

python examples/10_train_torchdata.py --output-dir out/torchdata
python examples/10_train_torchdata.py --output-dir out/torchdata --resume
"""

from __future__ import annotations

import torch

from lengthwise.integrations.torchdata import stateful_loader
from lengthwise.loader import BucketBatchSampler, token_weighted_loss
from tiny_language_model import COLLATE, TinyLanguageModel, loss_on, run_options, samples

NUM_EPOCHS = 2
SAVE_EVERY = 25


def main() -> None:
    """Two epochs, or what the checkpoint leaves of them."""
    options = run_options(__doc__)

    data = samples()
    sampler = BucketBatchSampler([len(row["input_ids"]) for row in data], max_tokens=4096)
    loader = stateful_loader(data, sampler, collate_fn=COLLATE, num_workers=2)
    model = TinyLanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    epoch = step = 0
    if options.resume:
        checkpoint = torch.load(options.output_dir / "checkpoint.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])
        epoch, step = checkpoint["epoch"], checkpoint["step"]

    while epoch < NUM_EPOCHS:
        for batch in loader:
            token_weighted_loss(model(batch["input_ids"]), batch["labels"], shift=True).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % SAVE_EVERY == 0:
                checkpoint = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "epoch": epoch,
                    "step": step,
                }
                torch.save(checkpoint, options.output_dir / "checkpoint.pt")
        print(f"epoch {epoch} ended at step {step}")
        epoch += 1
    print(f"loss {loss_on(model, data[:50]):.4f}")


if __name__ == "__main__":
    main()
