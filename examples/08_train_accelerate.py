"""Train with Accelerate on two processes, and resume with the very next batch.

torchrun --nproc-per-node 2 examples/08_train_accelerate.py --output-dir out/accelerate
torchrun --nproc-per-node 2 examples/08_train_accelerate.py --output-dir out/accelerate --resume
"""

from __future__ import annotations

import torch
from accelerate import Accelerator

from lengthwise.integrations.accelerate import prepare_loader
from lengthwise.loader import BucketBatchSampler, ResumableDataLoader, TokenWeightedLoss
from tiny_language_model import COLLATE, TinyLanguageModel, loss_on, run_options, samples

NUM_EPOCHS = 2
ACCUMULATION_STEPS = 2
SAVE_EVERY = 20  # optimiser steps


def main() -> None:
    """Two epochs, or what the checkpoint leaves of them."""
    options = run_options(__doc__)

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION_STEPS)
    data = samples()
    sampler = BucketBatchSampler(
        [len(row["input_ids"]) for row in data],
        max_tokens=4096,
        accumulation_steps=ACCUMULATION_STEPS,
    )
    loader = prepare_loader(accelerator, ResumableDataLoader(data, sampler, collate_fn=COLLATE))
    model = TinyLanguageModel()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    settings = {"count": "after", "trainer_divides_by": ACCUMULATION_STEPS}
    loss_function = TokenWeightedLoss(shift=True, **settings)
    if options.resume:
        accelerator.load_state(options.output_dir / "checkpoint")  # the loader's place, too

    step = 0
    for epoch in range(loader.state_dict()["epoch"], NUM_EPOCHS):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss_function(model(batch["input_ids"]), batch["labels"]))
                if accelerator.sync_gradients:
                    loss_function.rescale_gradients(model.parameters())
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if step % SAVE_EVERY == 0:
                    accelerator.save_state(options.output_dir / "checkpoint")
        accelerator.print(f"epoch {epoch} ended after {step} steps")
    accelerator.print(f"loss {loss_on(accelerator.unwrap_model(model), data[:50]):.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
