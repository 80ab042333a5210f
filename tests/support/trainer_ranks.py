"""Training runs through every integration, on real processes: what reached training, and when.

A run is a program of its own for each rank, so that nothing but the files of a checkpoint reaches
a resumed one. In the middle of an epoch it saves a checkpoint, by its framework's own means, and
goes on. The samples' numbers are written down where the model gets them.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

TIMEOUT_SECONDS = 240
"""Long on purpose: it only keeps a broken test from hanging for ever."""
NUM_SAMPLES = 120
ACCUMULATION = 2


def run_ranks(folder, kind, *, num_replicas=2, **options):
    """Run all ranks to the end; returns what each saw.

    Args:
        folder: an empty one, for the ranks' files and the checkpoint.
        kind: of ``trainer_kinds.KINDS``.
        num_replicas: processes.
        options: command line options; ``resume`` is the folder of the run whose checkpoint to load.

    Returns:
        A dict per rank: ``epochs`` (the batches of each, by epoch), ``steps`` of the optimiser and
        ``len`` of the loader at the start.
    """
    folder.mkdir()
    arguments = [kind, "--folder", str(folder)]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in _environments(num_replicas)
    ]
    try:
        for process in processes:
            output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(num_replicas)]
    return [{**seen, "epochs": {int(e): b for e, b in seen["epochs"].items()}} for seen in found]


def _environments(num_replicas):
    """As torchrun sets it up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
    parser.add_argument("kind")
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

    record = Record()
    trainer_kinds.KINDS[options.kind](options, record)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    written = {"epochs": record.epochs, "steps": record.steps, "len": record.len}
    (options.folder / f"rank{rank}.json").write_text(json.dumps(written))


if __name__ == "__main__":
    main()
