"""Train on two processes with DistributedDataParallel, and resume with the very next batch.

torchrun --nproc-per-node 2 examples/06_train_ddp.py --output-dir out/ddp
torchrun --nproc-per-node 2 examples/06_train_ddp.py --output-dir out/ddp --resume
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lengthwise.integrations.ddp import ddp_loader
from lengthwise.loader import BucketBatchSampler, TokenWeightedLoss
from tiny_language_model import COLLATE, TinyLanguageModel, loss_on, run_options, samples

NUM_EPOCHS = 2
SAVE_EVERY = 25


def main() -> None:
    """Two epochs, or what the checkpoint leaves of them."""
    options = run_options(__doc__)
    dist.init_process_group("gloo")

    data = samples()
    sampler = BucketBatchSampler([len(row["input_ids"]) for row in data], max_tokens=4096)
    loader = ddp_loader(data, sampler, collate_fn=COLLATE, num_workers=1)
    model = DistributedDataParallel(TinyLanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_function = TokenWeightedLoss(shift=True)
    step = 0
    if options.resume:
        checkpoint = torch.load(options.output_dir / "checkpoint.pt")
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])
        step = checkpoint["step"]

    for epoch in range(loader.state_dict()["epoch"], NUM_EPOCHS):
        for batch in loader:
            loss_function.begin_step(batch["labels"])  # the step's tokens, on all processes
            loss_function(model(batch["input_ids"]), batch["labels"]).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % SAVE_EVERY == 0 and dist.get_rank() == 0:
                checkpoint = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                }
                torch.save(checkpoint, options.output_dir / "checkpoint.pt")
        if dist.get_rank() == 0:
            print(f"epoch {epoch} ended at step {step}")
    if dist.get_rank() == 0:
        print(f"loss {loss_on(model.module, data[:50]):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
