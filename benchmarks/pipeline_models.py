"""Small real models on functions of the standard library, and their stages alone in bare loops."""

from __future__ import annotations

import time

import numpy as np
import torch
from pipeline_stages import stage_config, write_run_folder
from training_data import LONGEST, collect

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.setup import (
    load_ends_of,
    load_target_of,
    make_drafter,
    target_facts,
)
from lengthwise.dflash.training.source import TargetRunner

CPU = torch.device("cpu")
VOCABULARY = 260
"""Bytes, and some ids that no text has."""
MASK = VOCABULARY - 1
SIZES = {
    "vocab_size": VOCABULARY, "eos_token_id": MASK - 1, "hidden_size": 64,
    "intermediate_size": 192, "head_dim": 16, "initializer_range": 0.05,
}  # fmt: skip
SETTINGS = {
    "drafter": {"mask_token_id": MASK, "num_hidden_layers": 2, "block_size": 4},
    "batching": {"max_tokens": 2_048},
    "step": {
        "anchors_per_step": 256, "max_anchors": 32, "max_anchors_per_batch": 256,
        "shape_multiple": 8,
    },
}  # fmt: skip


def write_functions(folder, count):
    """Functions as bytes, the latter half of each to be learnt."""
    texts = collect(0, every=4).training[:count]
    assert max(map(len, texts)) == LONGEST
    ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.int64)
    return write_run_folder(folder, [len(text) for text in texts], ids=ids, **SIZES)


def functions_config(folder, output, **batching):
    """Training on them; ``batching`` is merged in."""
    sections = {**SETTINGS, "batching": {**SETTINGS["batching"], **batching}}
    return stage_config(folder, output, **sections)


def target_alone(config, plan):
    """Seconds of a bare loop over the plan's batches."""
    target, epoch = load_target_of(config, CPU), plan.epoch(0)
    drafter = make_drafter(config, target.config, target.ends.num_embeddings)
    runner = TargetRunner(target, plan.data.dataset, drafter.config.target_layer_ids)
    began = time.perf_counter()
    for index in range(epoch.num_arrivals):
        runner.run(epoch.arrival(index))
    return time.perf_counter() - began


def drafter_alone(config, plan):
    """Seconds of a bare loop over the plan's steps; features are there, and random."""
    ends, epoch = load_ends_of(config, CPU), plan.epoch(0)
    drafter = make_drafter(config, target_facts(config)[0], ends.num_embeddings)
    learner = Learner(drafter, ends, config, total_steps=plan.num_steps)
    size = int(plan.data.lengths.max()), drafter.config.feature_size
    features = torch.randn(size, generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    for index in range(epoch.num_steps):
        rows = [plan.data.dataset[sample] for sample in epoch.step(index).tolist()]
        learner.learn([sample_of(row, features) for row in rows], epoch.number)
    return time.perf_counter() - began


def sample_of(row, features):
    """A sample with as many features as it needs, copied as out of an arena."""
    ids = row["input_ids"]
    return Sample(row["sample_id"], ids, row["loss_mask"], features[: len(ids)].clone())
