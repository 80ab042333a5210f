"""The folders: random states in several sizes, and the tiny target with its own answers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3Config

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.target import samples_of
from lengthwise.dflash.target.ends import FrozenEnds
from lengthwise.loader import BucketBatchSampler
from rivals.folder import Example, Settings, write

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

LENGTHS = (384, 208, 144, 96, 64, 48, 32, 24)
"""Tokens of the samples of a timed step: a long tail, and a row of 1,024 with room for 24 more."""
ROW_TOKENS = 1024
PROMPT = 8
"""Tokens of each without a label."""
BLOCK_SIZE, LAYERS = 16, 5
MAX_ANCHORS = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a target and its drafter."""

    hidden_size: int
    heads: int
    key_heads: int
    inner: int
    vocab: int


STEPS = {
    "narrow": Sizes(128, 4, 2, 384, 4096),
    "SmolLM2-135M's sizes": Sizes(576, 9, 3, 1536, 49_152),
}


def write_random(sizes, path):
    """A folder of random states and labels, for steps that are timed."""
    config = DrafterConfig(
        hidden_size=sizes.hidden_size,
        num_hidden_layers=LAYERS,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.key_heads,
        head_dim=64,
        intermediate_size=sizes.inner,
        vocab_size=sizes.vocab,
        block_size=BLOCK_SIZE,
        mask_token_id=sizes.vocab - 1,
        target_layer_ids=(1, 7, 14, 21, 27),
        num_target_layers=30,
    )
    ends = _random_ends(sizes)
    target = _write_target(config, ends, path / "target")
    examples = list(_random_examples(config, ends))
    anchors = sum(min(MAX_ANCHORS, one.sample.num_valid_anchors) for one in examples)
    settings = Settings(str(path / "target"), ROW_TOKENS, MAX_ANCHORS, anchors, {})
    write(path, settings, ends, [Drafter(config, seed=1)], examples, target)


def _random_ends(sizes):
    generator = torch.Generator().manual_seed(0)
    embeddings = nn.Embedding(sizes.vocab, sizes.hidden_size)
    head = nn.Linear(sizes.hidden_size, sizes.vocab, bias=False)
    with torch.no_grad():
        for weight in (embeddings.weight, head.weight):
            weight.normal_(0, 0.02, generator=generator)
    return FrozenEnds(embeddings, head)


def _write_target(config, ends, place):
    """A directory with what trainers read of a target: config, ends and final norm."""
    place.mkdir()
    target = Qwen3Config(
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_target_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        architectures=["Qwen3ForCausalLM"],
    )
    target.save_pretrained(place)
    weights = {
        "model.embed_tokens.weight": ends.embeddings.weight.detach().clone(),
        "model.norm.weight": torch.ones(config.hidden_size),
        "lm_head.weight": ends.weight.detach().clone(),
    }
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    return target


def _random_examples(config, ends):
    generator = torch.Generator().manual_seed(2)
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(0, config.vocab_size - 1, (length,), generator=generator)
        features = torch.randn(length, config.feature_size, generator=generator)
        mask = torch.arange(length) >= PROMPT
        # States with which the target's head says each next token: the head's own row.
        last = ends.weight[ids.roll(-1)].detach() * 50
        yield Example(Sample(number, ids, mask, features), last)


@dataclass(frozen=True, slots=True)
class Training:
    """How much is trained and decoded."""

    num_prompts: int
    num_steps: int
    num_held_out: int
    seeds: int
    """Of each trainer with its own settings."""
    equal_seeds: int
    """Of each trainer with the same settings, which are to be told apart."""
    max_new_tokens: int = 256
    max_tokens: int = 512
    """Padded tokens of a step's samples, and tokens of a packed row."""
    max_anchors: int = 32


FULL = Training(num_prompts=400, num_steps=300, num_held_out=16, seeds=2, equal_seeds=6)
QUICK = Training(12, num_steps=6, num_held_out=2, seeds=1, equal_seeds=2, max_new_tokens=48)


def write_tiny(size, path):
    """A folder of the tiny target's own answers; the samples of every step, by seed."""
    from prove_drafter import Proof
    from prove_drafter import Sizes as ProofSizes

    proof = Proof(
        ProofSizes(
            num_prompts=size.num_prompts,
            num_held_out=size.num_held_out,
            max_new_tokens=size.max_new_tokens,
        ),
        seed=0,
    )
    examples = list(_answered(proof, path / "answers"))
    lengths = [len(example.sample) for example in examples]
    seeds = range(max(size.seeds, size.equal_seeds))
    steps = [_steps(lengths, size, seed) for seed in seeds]
    prompts = {}
    for exercise in proof.held_out:
        prompts.setdefault(exercise.task, []).append(proof.tokens(exercise))
    per_step = sum(len(batch) for batch in steps[0]) / len(steps[0])
    settings = Settings(
        target=str(Path(__file__).parents[2] / "data" / "tiny_target"),
        row_tokens=size.max_tokens,
        max_anchors=size.max_anchors,
        row_anchors=round(per_step * size.max_anchors),
        prompts=prompts,
        stop_token_ids=(proof.tokenizer.eos_token_id,),
        max_new_tokens=size.max_new_tokens,
    )
    starts = [Drafter(proof.config, seed=seed) for seed in seeds]
    write(path, settings, proof.target.ends, starts, examples, proof.target.config)
    return steps


def _answered(proof, directory):
    """Samples with states at the taps, and the last layer's raw output apart."""
    dataset, target = proof.answers(directory), proof.target
    taps = (*proof.config.target_layer_ids, target.config.num_hidden_layers - 1)
    width = target.config.hidden_size
    for number in range(len(dataset)):
        row = dataset[number]
        [sample] = samples_of(target, [row["input_ids"]], [row["loss_mask"]], [number], taps)
        features, last = sample.features[:, :-width], sample.features[:, -width:]
        yield Example(Sample(number, sample.input_ids, sample.loss_mask, features), last)


def _steps(lengths, size, seed):
    """The samples of each step: epochs of our own batches, mixed."""
    sampler = BucketBatchSampler(lengths, max_tokens=size.max_tokens, seed=seed)
    steps = []
    while len(steps) < size.num_steps:
        steps += [list(map(int, batch)) for batch in sampler]
    return steps[: size.num_steps]
