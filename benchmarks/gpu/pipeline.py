"""The pipeline and its strategies on one machine with a GPU, beside the floor of what they need.

    sh benchmarks/gpu/pipeline.sh                              (a target of 0.6 B made on the spot)
    sh benchmarks/gpu/pipeline.sh --model DIR                  (a target that is there)
    sh benchmarks/gpu/pipeline.sh --device cpu --quick         (whether the script works)

On a machine with several GPUs the last trains the drafter and the others run the target; with one
GPU both share it. Each stage runs alone first; by its speed the amount of data is chosen, so that
all of it ends within the minutes given. The floor is the operations and bytes that a stage needs
over those that the device reaches in a matrix product and in copies, measured in the same call.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from floors import ADAM_BYTES, device_name, floor, operations, peaks, wait
from pipeline_models import drafter_loop, target_loop
from pipeline_stages import Stages, stage_config, write_run_folder
from pipeline_strategies import ARMS, effects_of
from pipeline_timing import timed_run
from workloads import machine, run_lengths

from lengthwise.dflash.target import load_target_config
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.setup import count_weights, drafter_config, load_data, target_facts

TARGET = {
    "vocab_size": 151_936, "hidden_size": 1_024, "num_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3_072, "tied": True,
    "initializer_range": 0.02, "eos_token_id": 151_645,
}  # fmt: skip
"""The sizes of Qwen3-0.6B; weights are random, which costs the same."""
TINY = {"num_layers": 4}
MASK = 151_669
PROBES = 4
SHARE_OF_TIME = 0.6
"""Of the minutes, for running; the rest is for starting processes and loading models."""


def options():
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="directory of a target; default: one is made")
    parser.add_argument("--mask-token-id", type=int, help="of that target")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--work-dir", type=Path, default=Path("out/pipeline-gpu"))
    parser.add_argument("--output", type=Path, default=Path("out/pipeline_gpu.json"))
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    return parser.parse_args()


def main():
    """Measure, and write everything down."""
    chosen, began = options(), time.monotonic()
    targets, drafters = devices(chosen.device)
    folder, device = chosen.work_dir, torch.device(targets[0])
    shutil.rmtree(folder, ignore_errors=True)
    write_data(folder, chosen, 40 if chosen.quick else 400)
    peak = peaks(device, torch.float32 if device.type == "cpu" else torch.bfloat16, chosen.quick)
    stages = alone(config_of(folder, chosen, (targets, drafters), {}), device, peak)
    count = samples_for(stages, chosen, len(targets))
    write_data(folder, chosen, count)
    found = {
        "device": device_name(device),
        "targets": targets,
        "drafters": drafters,
        "peaks": peak,
        "stages": stages,
        "num_samples": count,
        "strategies": strategies(folder, chosen, (targets, drafters), stages),
        "seconds": time.monotonic() - began,
    }
    text = json.dumps({"machine": machine(), "result": found}, indent=2) + "\n"
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(text, encoding="utf-8")
    print(text)


def devices(kind):
    """Devices of target workers and of ranks."""
    if kind == "cpu":
        return ["cpu"], ["cpu"]
    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if not names:
        raise SystemExit("no CUDA device; --device cpu --quick shows whether the script works")
    return names[:-1] or names, names[-1:]


def write_data(folder, chosen, count):
    """Samples of the run's lengths, and a target unless one is given."""
    lengths = run_lengths(count)
    if chosen.quick:
        lengths = np.maximum(lengths // 16, 8)
    sizes = TINY if chosen.quick else TARGET
    ready = chosen.model is not None or (folder / "target").exists()
    highest = 90 if chosen.quick else 1_000  # any ids will do
    write_run_folder(folder, lengths, highest=highest, target=None if ready else sizes)


def config_of(folder, chosen, places, batching):
    """Training on it: the paper's drafter, steps of 64 long samples."""
    small = {
        "batching": {"max_tokens": 1_024, **batching},
        "step": {"anchors_per_step": 512, "max_anchors": 64, "max_anchors_per_batch": 256},
    }
    large = {
        "drafter": {"mask_token_id": chosen.mask_token_id or MASK, "num_hidden_layers": 5,
                    "block_size": 16},
        "batching": {"max_tokens": 16_384, **batching},
        "step": {"anchors_per_step": 32_768},
        "target": {"model": chosen.model or str(folder / "target"), "dtype": "bfloat16"},
    }  # fmt: skip
    section = {"target_devices": places[0], "drafter_devices": places[1]}
    return stage_config(
        folder, folder / "out", **(small if chosen.quick else large), pipeline=section
    )


def alone(config, device, peak):
    """Each stage in a bare loop: real tokens a second, its floor, and the share of it reached."""
    plan = TrainingPlan(load_data(config), config)
    epoch, facts = plan.epoch(0), target_facts(config)
    sizes = drafter_config(config, facts[0])
    token_bytes = sizes.feature_size * facts[1].itemsize
    weights = {
        "target": target_weights(load_target_config(config.target.model)[0]) * facts[1].itemsize,
        "drafter": count_weights(sizes) * ADAM_BYTES,
    }
    batches = [epoch.arrival(index) for index in range(min(PROBES, epoch.num_arrivals))]
    steps = [epoch.step(index) for index in range(min(PROBES, epoch.num_steps))]
    found = {}
    for name, make, pieces in (
        ("target", target_loop, batches), ("drafter", drafter_loop, steps)
    ):  # fmt: skip
        run = make(config, plan, device)
        needs = {"operations": sum(operations(run, piece) for piece in pieces) / len(pieces)}
        tokens = sum(int(plan.data.dataset.lengths[one].sum()) for one in pieces) / len(pieces)
        needs["bytes"] = weights[name] + 2 * tokens * token_bytes
        needs["bytes_to_host" if name == "target" else "bytes_from_host"] = tokens * token_bytes
        found[name] = timed(run, pieces, device, tokens, floor(needs, peak)) | {"needs": needs}
    return found


def timed(run, pieces, device, tokens, least):
    """Seconds of a piece, the least of three rounds, and the floor beside them."""
    rounds = []
    for _ in range(3):
        began = time.perf_counter()
        for piece in pieces:
            run(piece)
        wait(device)
        rounds.append((time.perf_counter() - began) / len(pieces))
    seconds = min(rounds)
    return {
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "floor": least,
        "share_of_floor": least["seconds"] / seconds,
    }


def target_weights(config):
    """Weights of the target's layers, which every batch reads once."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    attention = config.hidden_size * head * 2 * (heads + keys)
    return config.num_hidden_layers * (
        attention + 3 * config.hidden_size * config.intermediate_size
    )


def samples_for(stages, chosen, num_targets):
    """As many samples as all strategies get through in the time.

    If random batches need 2.5 times as long as sorted ones, and both stages share one device.
    """
    if chosen.quick:
        return 120
    seconds = 60 * chosen.minutes * SHARE_OF_TIME / (len(ARMS) - 1 + 2.5)
    each = 1 / (num_targets * stages["target"]["tokens_per_second"])
    each += 1 / stages["drafter"]["tokens_per_second"]
    return max(600, int(seconds / each / run_lengths(10_000).mean()))


def strategies(folder, chosen, places, stages):
    """Each strategy through the pipeline: real tokens a second, beside sorted and beside alone."""
    slowest = min(
        len(places[0]) * stages["target"]["tokens_per_second"],
        stages["drafter"]["tokens_per_second"],
    )
    rows = {}
    for name, arm in ARMS.items():
        config = config_of(folder, chosen, places, arm)
        plan = TrainingPlan(load_data(config), config)
        timing = timed_run(config, Stages(), imported=False)
        rate = timing.real_tokens / timing.whole_seconds
        rows[name] = {
            "tokens_per_second": rate,
            "of_the_slowest_stage_alone": rate / slowest,
            "efficiency": timing.real_tokens / timing.padded_tokens,
            "design_effect": effects_of(plan, config, 0)[0],
            "busy_shares": timing.busy_shares,
            "fill_seconds": timing.fill_seconds,
            "drain_seconds": timing.drain_seconds,
            "whole_seconds": timing.whole_seconds,
        }
        print(f"{name}: {rate:,.0f} real tokens a second", flush=True)
    for row in rows.values():
        row["ratio_to_sorted"] = row["tokens_per_second"] / rows["sorted"]["tokens_per_second"]
    return rows


if __name__ == "__main__":
    main()
