"""A training run's data on real processes: each rank loads, meets the others, writes what it saw.

Started as a program of its own, so that nothing but its arguments and the checkpoint's file reaches
it, as after a real restart.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

TIMEOUT_SECONDS = 480
"""Long on purpose: it only keeps a broken test from hanging for ever."""


def run_ranks(folder, num_replicas, *, epochs, stop_after=None, resume=None, options=()):
    """Run all ranks to the end and return what each saw.

    Args:
        folder: an empty one, for the ranks' files.
        num_replicas: processes.
        epochs: epochs to run to, counted from the run's very start.
        stop_after: (epoch, batches of it): save a checkpoint there and exit.
        resume: folder of the run whose checkpoint to load.
        options: further command line arguments.
    """
    folder.mkdir()
    arguments = ["--folder", folder, "--num-replicas", num_replicas, "--epochs", epochs, *options]
    if stop_after is not None:
        arguments += ["--stop-after", *stop_after]
    if resume is not None:
        arguments += ["--resume", resume / "checkpoint.json"]
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
        for rank in range(num_replicas)
    ]
    try:
        for process in processes:
            errors = process.communicate(timeout=TIMEOUT_SECONDS)[1]
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(num_replicas)]


def main():
    """One rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--num-replicas", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--stop-after", type=int, nargs=2)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--sampler-first", action="store_true")
    parser.add_argument("--no-set-epoch", action="store_true")
    options = parser.parse_args()

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(options.rank)  # ranks differ in all global generators
    random.seed(options.rank)
    sampler = make_sampler() if options.sampler_first else None
    dist.init_process_group(
        "gloo",
        init_method=f"file://{options.folder}/rendezvous",
        rank=options.rank,
        world_size=options.num_replicas,
        timeout=timedelta(seconds=TIMEOUT_SECONDS / 2),
    )
    try:
        seen = train(options, sampler or make_sampler())
    finally:
        dist.destroy_process_group()
    (options.folder / f"rank{options.rank}.json").write_text(json.dumps(seen))


def make_sampler():
    """Rank and number of replicas come from torch.distributed."""
    from lengthwise.loader import BucketBatchSampler
    from support.loader_runs import heavy_tail

    return BucketBatchSampler(heavy_tail(160), max_tokens=400, max_batch_size=8, num_buckets=3)


def train(options, sampler):
    """Batches of every epoch as this rank gets them; one all-reduce a step, like a gradient's."""
    import torch
    import torch.distributed as dist

    from lengthwise.loader import ResumableDataLoader

    loader = ResumableDataLoader(
        range(sampler.num_samples), sampler, collate_fn=list, num_workers=options.num_workers
    )
    first_epoch = 0
    if options.resume is not None:
        checkpoint = json.loads(options.resume.read_text())
        loader.load_state_dict(checkpoint)
        first_epoch = checkpoint["epoch"]
    seen = {"lens": [], "epochs": {}}
    for epoch in range(first_epoch, options.epochs):
        if not options.no_set_epoch:
            loader.set_epoch(epoch)
        seen["lens"].append(len(loader))
        batches = seen["epochs"].setdefault(str(epoch), [])
        for batch in loader:
            batches.append(batch)
            met = torch.ones(1)
            dist.all_reduce(met)  # hangs, and then times out, where ranks have unequal counts
            assert met.item() == options.num_replicas
            if options.stop_after == [epoch, len(batches)]:
                if options.rank == 0:
                    text = json.dumps(loader.state_dict())
                    (options.folder / "checkpoint.json").write_text(text)
                dist.barrier()
                return seen
    return seen


if __name__ == "__main__":
    main()
