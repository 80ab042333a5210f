"""The planned memory, against the models themselves."""

from __future__ import annotations

import json

import pytest
import torch

from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.target import load_target, target_bytes
from lengthwise.pipeline.memory import plan_memory
from lengthwise.pipeline.setup import set_up_pipeline
from support.dflash_models import FAMILIES
from support.dflash_runs import small_run_folder
from support.pipeline_runs import pipeline_config

torch.set_num_threads(1)


@pytest.mark.parametrize("family", ["llama", "llama-tied", "gpt2", "qwen3-next", "gemma3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_targets_weights_are_counted_as_they_load(family, dtype, tmp_path):
    """Tied weights once."""
    FAMILIES[family]().save_pretrained(tmp_path)
    target = load_target(tmp_path, dtype=dtype)
    counted = target_bytes(tmp_path, dtype=dtype)
    size = getattr(torch, dtype).itemsize
    assert counted.weights == size * sum(one.numel() for one in target.model.parameters())
    assert counted.ends == size * sum(one.numel() for one in target.ends.parameters())


def test_quantised_weights_are_not_guessed_at(tmp_path):
    FAMILIES["llama"]().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert target_bytes(tmp_path) is None


def test_every_device_and_the_shared_memory_have_their_parts(tmp_path):
    small_run_folder(tmp_path)
    setup = set_up_pipeline(pipeline_config(tmp_path, tmp_path / "out", workers=2, ranks=2))
    shared, *devices = plan_memory(setup)
    assert shared.parts == {"features that wait": setup.arena.num_bytes}
    # Two taps of 32 in float32; batches of 256 tokens.
    assert setup.arena.feature_size == 64
    target = load_target(tmp_path / "target")
    weights = 4 * sum(one.numel() for one in target.model.parameters())
    for number in (0, 1):
        assert devices[number].place == f"target worker {number} (cpu)"
        assert devices[number].parts == {"weights": weights, "features of a batch": 256 * 64 * 4}
    drafter = sum(one.numel() for one in Drafter(setup.drafter).parameters())
    largest = max(
        int(setup.data.dataset.lengths[setup.plan.epoch(0).step(step)].sum())
        for step in range(setup.plan.steps_per_epoch)
    )
    for rank in (0, 1):
        assert devices[2 + rank].place == f"drafter rank {rank} (cpu)"
        assert devices[2 + rank].parts == {
            "weights and optimiser": 16 * drafter,
            "the target's ends": 4 * sum(one.numel() for one in target.ends.parameters()),
            "features of 2 steps": 2 * largest * 64 * 4 // 2,
        }
        assert devices[2 + rank].num_bytes == sum(devices[2 + rank].parts.values())
