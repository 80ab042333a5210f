"""Training runs through every integration, on real processes: what reached training, and when.

A run is a program of its own for each rank, so that nothing but the files of a checkpoint reaches
a resumed one. In the middle of an epoch it saves a checkpoint, by its framework's own means, and
goes on. The samples' numbers are written down where the model gets them.
"""

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

TIMEOUT_SECONDS = 480
"""Long on purpose: it only keeps a broken test from hanging for ever."""
NUM_SAMPLES = 120
ACCUMULATION = 2


def run_ranks(folder, *kinds, num_replicas=2, **options):
    """Run all ranks to the end, one kind of loop after the other; returns what each saw.

    Args:
        folder: a new one, for the ranks' files and the checkpoints.
        kinds: of ``trainer_kinds.KINDS``; those of one framework share processes, which take long
            to start.
        num_replicas: processes.
        options: command line options; ``resume`` is the folder of the run whose checkpoint to load.

    Returns:
        By kind, a dict per rank: ``epochs`` (the batches of each, by epoch), ``steps`` of the
        optimiser and ``len`` of the loader at the start.
    """
    for kind in kinds:
        (folder / kind).mkdir(parents=True)
    arguments = [*kinds, "--folder", str(folder)]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    processes = [
        _start(folder / f"rank{rank}.log", arguments, environment)
        for rank, environment in enumerate(_environments(num_replicas))
    ]
    try:
        for rank, process in enumerate(processes):
            code = process.wait(timeout=TIMEOUT_SECONDS)
            assert code == 0, (folder / f"rank{rank}.log").read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {
        kind: [_seen(folder / kind / f"rank{rank}.json") for rank in range(num_replicas)]
        for kind in kinds
    }


def _start(log, arguments, environment):
    with log.open("w") as output:
        return subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _seen(path):
    seen = json.loads(path.read_text())
    return {**seen, "epochs": {int(e): batches for e, batches in seen["epochs"].items()}}


def _environments(num_replicas):
    """As torchrun sets it up."""
    port = _free_port()
    for rank in range(num_replicas):
        yield {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(num_replicas),
            "LOCAL_WORLD_SIZE": str(num_replicas),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "test",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }


def _free_port():
    """Below those that systems give out by themselves, so that nobody gets it before the ranks."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("of a hundred ports none is free")


class Record:
    """What reached training on one rank."""

    def __init__(self):
        self.epochs = {}
        self.epoch = 0
        self.steps = 0
        self.len = None

    def batch(self, indices):
        """A batch's samples."""
        self.epochs.setdefault(self.epoch, []).append([int(i) for i in indices])

    @property
    def place(self):
        """Epoch, and batches of it that were seen in this run."""
        return [self.epoch, len(self.epochs.get(self.epoch, []))]


def main():
    """One rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-in-epoch", type=int, default=1)
    parser.add_argument("--save-after", type=int, default=4)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--num-workers", type=int, default=0)
    options = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)  # ranks differ in all global generators
    random.seed(rank)
    from support import trainer_kinds

    for kind in options.kinds:
        record = Record()
        resume = options.resume and options.resume / kind.removesuffix("-skip")
        own = {**vars(options), "folder": options.folder / kind, "resume": resume}
        trainer_kinds.KINDS[kind](argparse.Namespace(**own), record)
        written = {"epochs": record.epochs, "steps": record.steps, "len": record.len}
        (options.folder / kind / f"rank{rank}.json").write_text(json.dumps(written))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
