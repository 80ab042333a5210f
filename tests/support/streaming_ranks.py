"""Streams on real processes: each rank streams, meets the others in every step, writes what it saw.

Started as a program of its own, as after a real restart.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

TIMEOUT_SECONDS = 480
"""Long on purpose: it only keeps a broken test from hanging for ever."""
SHARDS = [[1 + (7 * i) % 30 for i in range(300)], [1 + (11 * i) % 25 for i in range(45)]]
"""Lengths of the samples of two shards: one is much longer than the other."""
NUM_EPOCHS = 2


CASES = {
    "replicated": {"sharding": "replicated"},
    "strided": {"sharding": "strided"},
    "sharded": {"sharding": "sharded"},
    "dropped": {"sharding": "sharded", "drop_last": True},
}


def run_ranks(folder, *, stop_after=None, resume=None):
    """Run both ranks through all cases; by case, what each rank saw.

    Args:
        folder: an empty one, for the ranks' files.
        stop_after: by case, the batches after which to save the state and end the case.
        resume: folder of a run whose cases were stopped.
    """
    folder.mkdir()
    arguments = ["--folder", folder, "--stop-after", json.dumps(stop_after or {})]
    if resume is not None:
        arguments += ["--resume", resume]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments), "--rank", str(rank)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        for process in processes:
            errors = process.communicate(timeout=TIMEOUT_SECONDS)[1]
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.wait()
    seen = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    return {case: [by_case[case] for by_case in seen] for case in CASES}


def source_of(sharding, rank):
    """Samples (number, length): of this rank's shard, or of both."""
    numbered = []
    for shard in SHARDS:
        start = sum(map(len, numbered))
        numbered.append([(start + i, length) for i, length in enumerate(shard)])
    return numbered[rank] if sharding == "sharded" else numbered[0] + numbered[1]


def main():
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--stop-after", type=json.loads, required=True)
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{options.folder.resolve()}/rendezvous",
        rank=options.rank,
        world_size=2,
        timeout=timedelta(seconds=300),
    )
    seen = {case: run_case(case, options) for case in CASES}
    (options.folder / f"rank{options.rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def run_case(case, options):
    import torch
    import torch.distributed as dist

    from lengthwise.loader.streaming import StreamingBucketBatcher

    batcher = StreamingBucketBatcher(
        source_of(CASES[case]["sharding"], options.rank),
        lambda sample: sample[1],
        max_tokens=100,
        buffer_samples=16,
        sync_every=4,
        sync_timeout_seconds=300,
        **CASES[case],
    )
    name = f"{case}{options.rank}.pickle"
    if options.resume is not None:
        batcher.load_state_dict(pickle.loads((options.resume / name).read_bytes()))
    seen = {"batches": [], "ends": [], "num_dropped": 0}
    while batcher.epoch < NUM_EPOCHS:
        for batch in batcher:
            # A training step: it hangs, and times out, if the other rank has no batch.
            tokens = torch.tensor([sum(length for _, length in batch)])
            dist.all_reduce(tokens)
            seen["batches"].append([number for number, _ in batch])
            if len(seen["batches"]) == options.stop_after.get(case):
                (options.folder / name).write_bytes(pickle.dumps(batcher.state_dict()))
                return seen
        seen["ends"].append(len(seen["batches"]))
        seen["num_dropped"] += batcher.stats.num_dropped_samples
    return seen


if __name__ == "__main__":
    main()
