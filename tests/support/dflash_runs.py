"""Small training runs: a target on disk, prepared samples, a config. Made on the spot."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from lengthwise.dflash.training.config import parse_train_config
from support.dflash_models import EOS_TOKEN, MASK_TOKEN, tiny_qwen3


def write_target(directory, **sizes):
    """A tiny random Qwen3 as a checkpoint that transformers loads."""
    model = tiny_qwen3(**sizes)
    model.save_pretrained(directory)
    return directory


def write_samples(path, count, *, seed=0, longest=60, useless=0):
    """Random prompts and answers; the last ``useless`` samples have one supervised token each."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        length = draw.randint(8, longest) if draw.random() < 0.8 else draw.randint(4, 12)
        prompt = draw.randint(1, max(1, length // 2))
        mask = [False] * prompt + [True] * (length - prompt)
        if number >= count - useless:
            mask = [False] * (length - 1) + [True]
        ids = [draw.randrange(EOS_TOKEN) for _ in range(length)]
        rows.append({"input_ids": ids, "loss_mask": mask, "seq_len": length})
    write_rows(path, rows)
    return rows


def write_rows(path, rows):
    """A Parquet file of prepared samples."""
    table = pa.Table.from_pylist(
        rows,
        schema=pa.schema(
            [
                ("input_ids", pa.list_(pa.int32())),
                ("loss_mask", pa.list_(pa.bool_())),
                ("seq_len", pa.int32()),
            ]
        ),
    )
    pq.write_table(table, path, row_group_size=16)


def small_config(folder, output, **changes):
    """A run of a few steps; ``changes`` are fields or sections to merge in."""
    values = {
        "output_dir": str(output),
        "target": {"model": str(folder / "target"), "dtype": "float32"},
        "drafter": {"mask_token_id": MASK_TOKEN, "num_hidden_layers": 2, "block_size": 4},
        "data": {"train": [str(folder / "samples.parquet")], "num_held_out": 3},
        "epochs": 2,
        "device": "cpu",
        "batching": {"max_tokens": 256, "max_batch_size": 8},
        "remix": {"pool_batches": 3, "mixed_batches": 2},
        "step": {
            "anchors_per_step": 64,
            "max_anchors": 8,
            "max_anchors_per_batch": 24,
            "shape_multiple": 8,
        },
        "evaluation": {"num_prompts": 2, "max_new_tokens": 8},
        "checkpoint": {"every_steps": 3, "keep": 2},
        "logging": {"every_steps": 1},
        "optimizer": {"learning_rate": 3e-3},
    }
    for name, value in changes.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return parse_train_config(values)


def small_run_folder(folder, *, count=40, useless=2):
    """A target and samples in a folder."""
    torch.set_num_threads(1)
    write_target(folder / "target")
    write_samples(folder / "samples.parquet", count, useless=useless)
    return folder


def read_records(output):
    """All records of a run's metrics.jsonl; a line that is still being written is none yet."""
    text = (output / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.steps, self.evaluations, self.paths, self.expectations = [], [], [], []

    def expected(self, expectation):
        self.expectations.append(expectation)

    def stepped(self, position, result, facts):
        self.steps.append((position, result, facts))

    def evaluated(self, position, evaluation, sums):
        self.evaluations.append((position, evaluation, sums))

    def saved(self, position, path):
        self.paths.append(path)
