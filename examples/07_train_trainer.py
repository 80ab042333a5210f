"""Train with Hugging Face Trainer on two processes, and resume with the very next batch.

torchrun --nproc-per-node 2 examples/07_train_trainer.py --output-dir out/trainer
torchrun --nproc-per-node 2 examples/07_train_trainer.py --output-dir out/trainer --resume
"""

from __future__ import annotations

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from lengthwise.integrations.transformers import use_lengthwise
from tiny_language_model import COLLATE, PAD, run_options, samples


def model() -> LlamaForCausalLM:
    """A Llama of 27,000 weights."""
    config = LlamaConfig(
        vocab_size=PAD + 1,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=PAD,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    """Two epochs, or what the checkpoint leaves of them."""
    options = run_options(__doc__)
    rows = samples()
    arguments = TrainingArguments(
        output_dir=options.output_dir,
        num_train_epochs=2,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        save_steps=8,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    torch.manual_seed(0)
    trainer = Trainer(
        model(), arguments, train_dataset=Dataset.from_list(rows), data_collator=COLLATE
    )
    use_lengthwise(trainer, column="input_ids", max_tokens=4096)  # the one line
    trainer.train(get_last_checkpoint(options.output_dir) if options.resume else None)
    if trainer.is_world_process_zero():
        print(f"loss {trainer.model(**COLLATE(rows[:50])).loss.item():.4f}")


if __name__ == "__main__":
    main()
