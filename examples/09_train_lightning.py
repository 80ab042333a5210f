"""Train with Lightning on two processes, and resume with the very next batch.

python examples/09_train_lightning.py --output-dir out/lightning
python examples/09_train_lightning.py --output-dir out/lightning --resume
"""

from __future__ import annotations

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lengthwise.integrations.lightning import LightningLoader, lightning_loader
from lengthwise.loader import BucketBatchSampler, ResumableDataLoader, TokenWeightedLoss
from tiny_language_model import COLLATE, TinyLanguageModel, loss_on, run_options, samples

ACCUMULATION_STEPS = 2


class LanguageModel(lightning.LightningModule):
    """The model, its data and its loss."""

    def __init__(self) -> None:
        """Read the data once."""
        super().__init__()
        self.model = TinyLanguageModel()
        self.data = samples()
        settings = {"count": "after", "trainer_divides_by": ACCUMULATION_STEPS}
        self.loss_function = TokenWeightedLoss(shift=True, **settings)

    def train_dataloader(self) -> LightningLoader:
        """Made here, where the trainer has its processes."""
        lengths = [len(row["input_ids"]) for row in self.data]
        options = {"max_tokens": 4096, "accumulation_steps": ACCUMULATION_STEPS}
        sampler = BucketBatchSampler(lengths, **options)
        loader = ResumableDataLoader(self.data, sampler, collate_fn=COLLATE, num_workers=1)
        return lightning_loader(self.trainer, loader)

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        """A sum over the batch; divided when the step's tokens are known."""
        return self.loss_function(self.model(batch["input_ids"]), batch["labels"])

    def on_before_optimizer_step(self, _: torch.optim.Optimizer) -> None:
        """Divide by the tokens of all processes and micro-batches."""
        self.loss_function.rescale_gradients(self.parameters())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    """Two epochs, or what the checkpoint leaves of them."""
    options = run_options(__doc__)
    checkpoint = options.output_dir / "checkpoint.ckpt"
    saving = ModelCheckpoint(
        options.output_dir, checkpoint.stem, every_n_train_steps=8, enable_version_counter=False
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        accumulate_grad_batches=ACCUMULATION_STEPS,
        callbacks=[saving],
        logger=False,
    )
    module = LanguageModel()
    trainer.fit(module, ckpt_path=checkpoint if options.resume else None)
    if trainer.is_global_zero:
        print(f"loss {loss_on(module.model, module.data[:50]):.4f}")


if __name__ == "__main__":
    main()
