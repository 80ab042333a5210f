"""Make data/tiny_target: a small language model with real skill at the task of tiny_target_task.py.

python examples/train_tiny_target.py --output-dir data/tiny_target

It learns in some minutes on one core, from exercises that lengthwise batches: short ones first,
then all lengths. The same machine and versions give the same weights. At the end it answers
held-out prompts greedily and writes how many answers are right.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from lengthwise.loader import BucketBatchSampler, PadCollator, token_weighted_loss
from tiny_target_task import TASKS, Exercise, exercises

SPECIAL = ("<pad>", "<eos>", "<mask>", "<user>", "<assistant>")
PAD, EOS, MASK, USER, ASSISTANT = range(len(SPECIAL))
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}<assistant>"
    "{% generation %}{{ message['content'] }}<eos>{% endgeneration %}"
    "{% else %}<user>{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@dataclass(frozen=True)
class Stage:
    """A part of the training, of fresh exercises that are seen once.

    Attributes:
        num_samples: how many.
        most_notes: none has more notes.
        seed: of the exercises.
    """

    num_samples: int
    most_notes: int
    seed: int


@dataclass(frozen=True)
class Phase:
    """Stages under one learning rate schedule, with an optimiser of their own.

    Attributes:
        learning_rate: at its peak.
        stages: one after the other.
    """

    learning_rate: float
    stages: tuple[Stage, ...]


PHASES = (
    Phase(3e-3, (Stage(5_000, 3, seed=0), Stage(7_000, 10, seed=1))),
    Phase(2e-3, (Stage(14_000, 10, seed=2),)),
)
MAX_TOKENS = 2048
WARMUP_STEPS = 100


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and the markers of pad, end, mask and speakers."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",  # noqa: S106
        eos_token="<eos>",  # noqa: S106
        mask_token="<mask>",  # noqa: S106
        additional_special_tokens=["<user>", "<assistant>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


def save_tokenizer(directory: Path) -> None:
    """Save it so that transformers 4 and 5 both load it."""
    make_tokenizer().save_pretrained(directory)
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["backend"]
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # version 5 has a name of its own for it
    config["additional_special_tokens"] = config.pop("extra_special_tokens")
    path.write_text(json.dumps(config, indent=2) + "\n")


def make_model() -> Qwen3ForCausalLM:
    """The untrained target: 6 layers of width 64, the head tied to the embedding."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(SPECIAL) + len(CHARACTERS),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def encode(exercise: Exercise) -> dict[str, list[int]]:
    """Tokens of prompt and answer; only the answer and its end are supervised."""
    index = {character: len(SPECIAL) + i for i, character in enumerate(CHARACTERS)}
    prompt = [USER, *(index[c] for c in exercise.prompt), ASSISTANT]
    answer = [*(index[c] for c in exercise.answer), EOS]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def loader_of(stage: Stage) -> DataLoader[Any]:
    """Batches of at most ``MAX_TOKENS`` padded tokens."""
    rows = [
        encode(one) for one in exercises(stage.num_samples, stage.seed, most_notes=stage.most_notes)
    ]
    sampler = BucketBatchSampler([len(row["input_ids"]) for row in rows], max_tokens=MAX_TOKENS)
    return DataLoader(rows, batch_sampler=sampler, collate_fn=PadCollator(pad_token_id=PAD))


def train(model: Qwen3ForCausalLM, phase: Phase) -> None:
    """One phase; prints the loss."""
    loaders = [loader_of(stage) for stage in phase.stages]
    num_steps = sum(map(len, loaders))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=phase.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = LambdaLR(optimizer, lambda step: _share_of_rate(step, num_steps))
    begin, step, recent = time.perf_counter(), 0, []
    for loader in loaders:
        for batch in loader:
            # Padding stands on the right, where a causal model does not look: no mask is needed.
            logits = model(input_ids=batch["input_ids"], use_cache=False).logits
            loss = token_weighted_loss(logits, batch["labels"], shift=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            recent.append(loss.item())
            step += 1
            if step % 100 == 0 or step == num_steps:
                mean, spent = sum(recent) / len(recent), time.perf_counter() - begin
                print(f"step {step:,} of {num_steps:,}  loss {mean:.5f}  {spent:.0f} s", flush=True)
                recent.clear()


def _share_of_rate(step: int, num_steps: int) -> float:
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, num_steps - WARMUP_STEPS)
    return 0.5 * (1 + float(torch.cos(torch.tensor(progress * torch.pi))))


@torch.inference_mode()
def accuracy(model: Qwen3ForCausalLM, count: int = 100) -> dict[str, float]:
    """Share of held-out prompts of each task that are answered without a wrong character."""
    right = dict.fromkeys(TASKS, 0)
    asked = dict.fromkeys(TASKS, 0)
    for exercise in exercises(count, seed=1, held_out=True):
        row = encode(exercise)
        answer = [label for label in row["labels"] if label != -100]
        prompt = row["input_ids"][: -len(answer)]
        generated = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=len(answer),
            do_sample=False,
        )
        asked[exercise.task] += 1
        right[exercise.task] += generated[0, len(prompt) :].tolist() == answer
    shares = {task: right[task] / asked[task] for task in TASKS}
    return {**shares, "all": sum(right.values()) / sum(asked.values())}


def main() -> None:
    """Train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)  # one thread adds in one order
    model = make_model()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    for phase in PHASES:
        train(model, phase)
    model.eval()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(options.output_dir)
    save_tokenizer(options.output_dir)
    shares = accuracy(model)
    (options.output_dir / "accuracy.json").write_text(json.dumps(shares, indent=2) + "\n")
    print("right answers to held-out prompts:", shares)


if __name__ == "__main__":
    main()
