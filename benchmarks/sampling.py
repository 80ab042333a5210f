"""How fast samplers hand out batches of indices, beside others' in the same run; and their memory.

A pass is an epoch as a training loop sees it: planning included, an empty data set. "Alone" is
without a thread that plans the next epoch meanwhile. Each row runs in a process of its own. Peers
that are not installed are left out; Lhotse and SpeechBrain are not among the development packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import types
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import process_memory
from workloads import RUN_LIMITS, run_lengths

RUN_SIZE = 902_087
BIG = 10_000_000
MEAN_BATCH_SIZE = 24
"""Samples in a batch of the run on average; for peers whose batches have one size."""
WARM_UP = {"lhotse": 2000, "speechbrain": 2000}
"""Samples of a first sampler, which loads all code; few where every sample is slow."""
TURNS = 3
"""Of all samplers one after the other, so that what slows the machine for a while slows all."""
LARGE, LONGEST = 50_000, 10
"""Above so many samples: seconds of passes, of which the fastest counts. Three at least."""
SIZES = {"lhotse": (100_000,), "speechbrain": (RUN_SIZE,)}
"""Lhotse makes an object a sample first, SpeechBrain would need minutes for ten million."""
PACKAGES = {"transformers": "transformers", "lhotse": "lhotse", "speechbrain": "speechbrain"}


def measure(quick):
    """Batches a second and bytes a sample, for each sampler and size; and resuming."""
    found = {}
    for turn in range(1 if quick else TURNS):
        for name in SAMPLERS:
            if name in PACKAGES and find_spec(PACKAGES[name]) is None:
                print(f"{name:14} not installed")
                continue
            if turn and name in SIZES:  # minutes, for what is far behind
                continue
            for num_samples in (50_000,) if quick else SIZES.get(name, (RUN_SIZE, BIG)):
                row = _in_own_process(name, num_samples)
                print(_line(row), flush=True)
                found.setdefault((name, num_samples), []).append(row)
    rows = [_fastest(turns) for turns in found.values()]
    resumed = _in_own_process("resume", 200_000 if quick else 16_000_000)
    print(
        f"resume at step {resumed['step']:,} of {resumed['num_steps']:,}: "
        f"{resumed['milliseconds']:.0f} ms to the first batch"
    )
    return {
        "versions": _versions(),
        "load": os.getloadavg()[1],
        "niceness": os.nice(0),
        "rows": rows,
        "resume": resumed,
    }


def _fastest(turns):
    """The turn with the fastest pass; the most memory of any."""
    most = max(row["bytes_per_sample"] for row in turns)
    return {**max(turns, key=lambda row: row["batches_per_second"]), "bytes_per_sample": most}


def _versions():
    found = {}
    for package in ("torch", *PACKAGES.values()):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _in_own_process(name, num_samples):
    command = [sys.executable, __file__, name, str(num_samples)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _line(row):
    return (
        f"{row['sampler']:14} {row['num_samples']:>11,} samples  "
        f"{row['batches_per_second']:>12,.0f} batches/s  "
        f"{row['samples_per_second'] / 1e6:7.2f} M samples/s  "
        f"{row['bytes_per_sample']:6.1f} bytes a sample"
    )


def measure_one(name, num_samples):
    """One sampler: set-up, its fastest pass, and memory above the lengths' array."""
    make = SAMPLERS[name]
    _passes(make(run_lengths(min(num_samples, WARM_UP.get(name, 400_000)))), 2)
    lengths = run_lengths(num_samples)
    before = process_memory.reset_peak()
    started = time.perf_counter()
    sampler = make(lengths)
    setup = time.perf_counter() - started
    seconds, num_batches = _passes(sampler, 3, LONGEST if num_samples > LARGE else 0)
    return {
        "sampler": name,
        "num_samples": num_samples,
        "setup_seconds": setup,
        "pass_seconds": seconds,
        "num_batches": num_batches,
        "batches_per_second": num_batches / seconds,
        "samples_per_second": num_samples / seconds,
        "bytes_per_sample": (process_memory.peak() - before) / num_samples,
    }


def _passes(sampler, least, seconds=0):
    """Seconds of the fastest pass, and its number of batches; so many passes or seconds."""
    found = []
    begun = time.perf_counter()
    while len(found) < least or time.perf_counter() - begun < seconds:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(len(found))
        started = time.perf_counter()
        num_batches = sum(1 for _ in sampler)
        found.append((time.perf_counter() - started, num_batches))
    return min(found)


def _ours(lengths, **options):
    from lengthwise.loader import BucketBatchSampler

    limits = {"max_tokens": RUN_LIMITS.max_tokens, "max_batch_size": RUN_LIMITS.max_batch_size}
    return BucketBatchSampler(lengths, rank=0, num_replicas=1, **limits, **options)


def _transformers(lengths):
    from torch.utils.data import BatchSampler
    from transformers.trainer_pt_utils import LengthGroupedSampler

    sampler = LengthGroupedSampler(MEAN_BATCH_SIZE, lengths=lengths.tolist())
    return BatchSampler(sampler, MEAN_BATCH_SIZE, drop_last=False)


def _lhotse(lengths):
    from lhotse import CutSet, MonoCut
    from lhotse.dataset import DynamicBucketingSampler

    cuts = CutSet.from_cuts(
        MonoCut(id=str(i), start=0, duration=float(length), channel=0)
        for i, length in enumerate(lengths.tolist())
    ).to_eager()
    return DynamicBucketingSampler(
        cuts,
        max_duration=RUN_LIMITS.max_tokens,
        max_cuts=RUN_LIMITS.max_batch_size,
        num_buckets=6,
        shuffle=True,
        world_size=1,
        rank=0,
    )


def _speechbrain(lengths):
    # Its package loads torchaudio for reading audio, which the sampler has no use for.
    stub = types.ModuleType("torchaudio")
    stub.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", stub)
    from speechbrain.dataio.sampler import DynamicBatchSampler

    return DynamicBatchSampler(
        range(len(lengths)),
        RUN_LIMITS.max_tokens,
        bucket_boundaries=[770, 1216, 1728, 2432, 3296, 8192],
        max_batch_ex=RUN_LIMITS.max_batch_size,
        lengths_list=lengths.tolist(),
    )


def _resume(num_samples):
    """From a state in the middle of an epoch to its first batch, in a fresh sampler."""
    lengths = run_lengths(num_samples)
    options = {"num_buckets": 6, "batch_sizing": "fixed"}
    options |= {"max_tokens": 65_536, "max_batch_size": 8, "rank": 0, "num_replicas": 1}
    from lengthwise.loader import BucketBatchSampler

    saved = BucketBatchSampler(lengths, **options)
    next(iter(saved))
    state = saved.state_dict()
    state["step"] = saved.num_steps // 2
    found = []
    for _ in range(3):
        sampler = BucketBatchSampler(lengths, **options)
        started = time.perf_counter()
        sampler.load_state_dict(state)
        next(iter(sampler))
        found.append(time.perf_counter() - started)
    return {
        "num_samples": num_samples,
        "num_steps": saved.num_steps,
        "step": state["step"],
        "milliseconds": min(found) * 1e3,
    }


SAMPLERS = {
    "pooled": _ours,
    "pooled, alone": lambda lengths: _ours(lengths, plan_ahead=False),
    "bucketed": lambda lengths: _ours(lengths, num_buckets=6),
    "fixed": lambda lengths: _ours(lengths, num_buckets=6, batch_sizing="fixed"),
    "transformers": _transformers,
    "lhotse": _lhotse,
    "speechbrain": _speechbrain,
}


if __name__ == "__main__":
    name, num_samples = sys.argv[1], int(sys.argv[2])
    print(json.dumps(_resume(num_samples) if name == "resume" else measure_one(name, num_samples)))
