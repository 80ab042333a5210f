"""Small real models on functions of the standard library, and their stages alone in bare loops."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np
import torch
from pipeline_stages import stage_config, write_run_folder
from training_data import LONGEST, collect

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import (
    drafter_config,
    load_data,
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
    return write_run_folder(folder, [len(text) for text in texts], ids=ids, target=SIZES)


def functions_config(folder, output, **batching):
    """Training on them; ``batching`` is merged in."""
    sections = {**SETTINGS, "batching": {**SETTINGS["batching"], **batching}}
    return stage_config(folder, output, **sections)


def target_alone(config, plan, ready):
    """Seconds of a bare loop over the plan's batches; ``ready`` is called before it begins."""
    run, epoch = target_loop(config, plan), plan.epoch(0)
    ready()
    began = time.perf_counter()
    for index in range(epoch.num_arrivals):
        run(epoch.arrival(index))
    return time.perf_counter() - began


def drafter_alone(config, plan, ready):
    """Seconds of a bare loop over the plan's steps; features are there, and random."""
    learn, epoch = drafter_loop(config, plan), plan.epoch(0)
    ready()
    began = time.perf_counter()
    for index in range(epoch.num_steps):
        learn(epoch.step(index))
    return time.perf_counter() - began


def bare_loops(config, names):
    """Seconds of the stages' bare loops, begun together, each in a new process as in a pipeline."""
    context = multiprocessing.get_context("spawn")
    together, found = context.Barrier(len(names)), context.SimpleQueue()
    tasks = [(name, config, together, found) for name in names]
    processes = [context.Process(target=_loop, args=task) for task in tasks]
    for process in processes:
        process.start()
    seconds = dict(found.get() for _ in processes)
    for process in processes:
        process.join()
    return seconds


def _loop(name, config, together, found):
    torch.set_num_threads(1)
    plan = TrainingPlan(load_data(config), config)
    loop = {"target": target_alone, "drafter": drafter_alone}[name]
    found.put((name, loop(config, plan, together.wait)))


def target_loop(config, plan, device=CPU):
    """A function that runs one batch, samples given by number."""
    target = load_target_of(config, device)
    drafter = drafter_config(config, target.config, target.ends.num_embeddings)
    return TargetRunner(target, plan.data.dataset, drafter.target_layer_ids).run


def drafter_loop(config, plan, device=CPU):
    """A function that learns from one step's samples, given by number."""
    ends, (target_config, dtype) = load_ends_of(config, device), target_facts(config)
    drafter = make_drafter(config, target_config, ends.num_embeddings).to(device)
    learner = Learner(drafter, ends, config, total_steps=plan.num_steps)
    size = int(plan.data.lengths.max()), drafter.config.feature_size
    features = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(device, dtype)

    def learn(sample_ids):
        rows = [plan.data.dataset[sample] for sample in sample_ids.tolist()]
        return learner.learn([sample_of(row, features) for row in rows], 0)

    return learn


def sample_of(row, features):
    """A sample with as many features as it needs, copied as out of an arena."""
    ids = row["input_ids"]
    return Sample(row["sample_id"], ids, row["loss_mask"], features[: len(ids)].clone())
