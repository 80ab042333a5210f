"""Prove on a CPU that a drafter learns: the tiny target's next tokens, several at a time.

python examples/prove_drafter.py --output-dir out

The target in data/tiny_target answers prompts; a drafter of two layers learns from those answers,
in batches that lengthwise plans. Then held-out prompts, which occur nowhere in training, are
decoded with it, and the output is compared with what the target says alone, token by token: with
the trained drafter, with the drafter before training, with the trained one that is shown no
target states, and with one that offers random tokens. Writes ``proof.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.dflash.anchors import draw_anchors
from lengthwise.dflash.batch import pack_rows
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.dataset import PreparedDataset
from lengthwise.dflash.decoding import DrafterProposer, Proposal, evaluate
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.optimizer import OptimizerConfig, build_optimizer
from lengthwise.dflash.prepare import GenerationSettings, PrepareConfig, prepare
from lengthwise.dflash.prepare.run import Device
from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.target import load_target, load_tokenizer, samples_of
from lengthwise.dflash.update import Update
from lengthwise.loader import BucketBatchSampler
from tiny_target_task import TASKS, Exercise, exercises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.batch import Sample
    from lengthwise.dflash.decoding import Evaluation
    from lengthwise.dflash.decoding.sampling import Sampling

TARGET = Path(__file__).parents[1] / "data" / "tiny_target"


@dataclass(frozen=True)
class Sizes:
    """How much work the proof is.

    Attributes:
        num_prompts: prompts answered and trained on.
        epochs: passes over them.
        max_tokens: padded tokens of a batch.
        max_anchors: blocks a sample and epoch.
        learning_rate: at its peak.
        num_held_out: prompts decoded for the final figures.
        num_curve: of these, how many for each row of the learning curve.
        answer_tokens: tokens of a batch while the target answers.
        max_new_tokens: most tokens of an answer.
    """

    num_prompts: int = 1000
    epochs: int = 14
    max_tokens: int = 4096
    max_anchors: int = 32
    learning_rate: float = 4e-3
    num_held_out: int = 24
    num_curve: int = 12
    answer_tokens: int = 65_536
    max_new_tokens: int = 600


FULL, FULL_LEAST = Sizes(), 6.0
SHORT = Sizes(num_prompts=600, epochs=7, num_held_out=12, num_curve=3, max_new_tokens=256)
SHORT_LEAST = 3.0
"""Tokens per verification, of 8 at most, that each form must reach."""


class RandomTokens:
    """An adversary: offers tokens drawn at random, so that nearly every one must be refused."""

    layer_ids = ()

    def __init__(self, block_size: int, vocab_size: int) -> None:
        """The same tokens in every run."""
        self.block_size = block_size
        self._vocab_size = vocab_size
        self._generator = torch.Generator().manual_seed(0)

    def begin(self) -> None:
        """There is nothing to forget."""

    def observe(self, token_ids: Sequence[int], features: torch.Tensor | None) -> None:
        """What was said does not matter."""

    def propose(
        self, bonus: int, count: int, sampling: Sampling, generator: torch.Generator | None
    ) -> Proposal:
        """Offer ``count`` random tokens."""
        del bonus, sampling, generator
        return Proposal(torch.randint(self._vocab_size, (count,), generator=self._generator))


class Proof:
    """The target, its answers, and the drafter that learns from them."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Load the target; make the prompts and an untrained drafter."""
        self.sizes = sizes
        self.seed = seed
        self.target = load_target(TARGET)
        self.tokenizer = load_tokenizer(TARGET)
        self.config = DrafterConfig.for_target(
            self.target.config,
            mask_token_id=self.tokenizer.mask_token_id,
            num_hidden_layers=2,
            block_size=8,
        )
        self.drafter = Drafter(self.config, seed=seed)
        self.training = exercises(sizes.num_prompts, seed=100 + seed)
        self.held_out = exercises(sizes.num_held_out, seed=200 + seed, held_out=True)
        texts = {exercise.prompt for exercise in self.training}
        assert not any(exercise.prompt in texts for exercise in self.held_out)
        self.curve: list[dict[str, float]] = []
        self.train_cpu_seconds = self.train_seconds = 0.0

    def tokens(self, exercise: Exercise) -> list[int]:
        """The prompt by the target's chat template, up to where the answer begins."""
        found: list[int] = self.tokenizer.apply_chat_template(
            exercise.messages, add_generation_prompt=True, return_dict=False
        )
        return found

    def answers(self, directory: Path) -> PreparedDataset:
        """The training prompts with the target's own answers, as a prepared data set."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        source = directory / "prompts.jsonl"
        lines = [json.dumps({"task": one.task, "prompt": one.prompt}) for one in self.training]
        source.write_text("\n".join(lines) + "\n")
        summary = prepare(
            [str(source)],
            PrepareConfig(
                target=str(TARGET),
                generation=GenerationSettings(max_new_tokens=self.sizes.max_new_tokens),
            ),
            directory / "prepared",
            device=Device("cpu", batch_tokens=self.sizes.answer_tokens),
            target=self.target,
            tokenizer=self.tokenizer,
        )
        return PreparedDataset(summary.output, vocab_size=self.target.vocab_size)

    def samples(self, dataset: PreparedDataset) -> list[Sample]:
        """The answers with the target's states at the taps, in the data's order."""
        found: dict[int, Sample] = {}
        for batch in BucketBatchSampler(dataset.lengths, max_tokens=self.sizes.max_tokens):
            rows = [dataset[i] for i in batch]
            samples = samples_of(
                self.target,
                [row["input_ids"] for row in rows],
                [row["loss_mask"] for row in rows],
                batch,
                self.config.target_layer_ids,
            )
            found |= {sample.sample_id: sample for sample in samples}
        return [found[i] for i in range(len(dataset))]

    def train(self, samples: list[Sample]) -> None:
        """All epochs; a row of the learning curve after each."""
        sampler = BucketBatchSampler(
            list(map(len, samples)), max_tokens=self.sizes.max_tokens, seed=self.seed
        )
        optimizer = build_optimizer(
            self.drafter, OptimizerConfig(learning_rate=self.sizes.learning_rate)
        )
        update = Update(
            self.drafter,
            optimizer,
            ScheduleConfig(),
            total_steps=self.sizes.epochs * len(sampler),
        )
        for epoch in range(self.sizes.epochs):
            wall, cpu = time.perf_counter(), time.process_time()
            sums = None
            for batch in sampler:
                rows = pack_rows([samples[i] for i in batch], self.sizes.max_tokens)
                anchors = draw_anchors(
                    rows, max_anchors=self.sizes.max_anchors, seed=self.seed, epoch=epoch
                )
                found = draft_step(self.drafter, self.target.ends, rows, anchors, LossConfig())
                update.backward(found, batch)
                result = update.step()
                sums = result.sums if sums is None else sums + result.sums
            self.train_seconds += time.perf_counter() - wall
            self.train_cpu_seconds += time.process_time() - cpu
            assert sums is not None
            self.note(update.num_steps, sums.loss, sums.streak)

    def note(self, step: int, loss: float, streak: float) -> None:
        """Add a row to the learning curve and print it."""
        found = self.decode(self.drafter, self.sizes.num_curve)
        row = {
            "step": step,
            "loss": loss,
            "streak": streak,
            "tokens_per_verify": found.tokens_per_verify or 0.0,
            "train_cpu_seconds": self.train_cpu_seconds,
        }
        self.curve.append(row)
        print(
            f"{step:6,} {loss:9.4f} {streak:8.2f} {row['tokens_per_verify']:18.2f} "
            f"{self.train_cpu_seconds:8.0f} s",
            flush=True,
        )

    def decode(
        self, drafter: Any, count: int | None = None, *, compare: bool = False
    ) -> Evaluation:
        """Decode held-out prompts, the first ``count`` or all."""
        prompts: dict[str, list[list[int]]] = {task: [] for task in TASKS}
        for exercise in self.held_out[:count]:
            prompts[exercise.task].append(self.tokens(exercise))
        return evaluate(
            self.target,
            drafter,
            prompts,
            max_new_tokens=self.sizes.max_new_tokens,
            stop_token_ids=[self.tokenizer.eos_token_id],
            compare=compare,
        )

    def figures(self) -> dict[str, dict[str, Any]]:
        """Decoding of all held-out prompts by each kind of drafter, beside the target alone."""
        ends = self.target.ends
        kinds = {
            "trained": self.drafter,
            "untrained": Drafter(self.config, seed=self.seed),
            "context_zeroed": DrafterProposer(self.drafter, ends, zero_context=True),
            "random_tokens": RandomTokens(self.config.block_size, self.target.vocab_size),
        }
        return {name: self.decode(kind, compare=True).to_dict() for name, kind in kinds.items()}


def prove(sizes: Sizes, output: Path, seed: int = 0) -> dict[str, Any]:
    """Run the proof and return its figures; its data go to ``output``."""
    torch.set_num_threads(1)
    begin = time.perf_counter()
    proof = Proof(sizes, seed)
    dataset = proof.answers(output / "proof")
    print(f"{len(dataset):,} prompts answered by the target in {time.perf_counter() - begin:.0f} s")
    samples = proof.samples(dataset)
    print("  step      loss   streak  tokens_per_verify   CPU")
    proof.train(samples)
    figures = proof.figures()
    for name, found in figures.items():
        print(
            f"{name:15} {found['tokens_per_verify']:.2f} tokens per verification, "
            f"{found['num_mismatches']} of {found['num_prompts']} outputs differ"
        )
    return {
        "sizes": asdict(sizes),
        "seed": seed,
        "target_layer_ids": proof.config.target_layer_ids,
        "train_seconds": proof.train_seconds,
        "train_cpu_seconds": proof.train_cpu_seconds,
        "seconds": time.perf_counter() - begin,
        "curve": proof.curve,
        "decoding": figures,
    }


def shortfalls(found: dict[str, Any], least: float) -> list[str]:
    """What the figures do not show, in words; nothing where the proof holds.

    Args:
        found: of :func:`prove`.
        least: tokens per verification that the trained drafter must reach.
    """
    decoding = found["decoding"]
    rates = {name: one["tokens_per_verify"] for name, one in decoding.items()}
    claims = {
        f"the trained drafter reaches {least:g} tokens per verification": rates["trained"] >= least,
        "an untrained one gains nothing (at most 1.1)": rates["untrained"] <= 1.1,
        "without the target's states it gains little (below 1.5)": rates["context_zeroed"] < 1.5,
        "no output differs from the target's own": not any(
            one["num_mismatches"] for one in decoding.values()
        ),
    }
    return [claim for claim, holds in claims.items() if not holds]


def main() -> None:
    """Run the proof; exit 1 if the drafter does not do what it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="the form that CI runs")
    options = parser.parse_args()
    found = prove(SHORT if options.short else FULL, options.output_dir, options.seed)
    (options.output_dir / "proof.json").write_text(json.dumps(found, indent=2) + "\n")
    missing = shortfalls(found, SHORT_LEAST if options.short else FULL_LEAST)
    if missing:
        sys.exit("not shown: " + "; ".join(missing))


if __name__ == "__main__":
    main()
