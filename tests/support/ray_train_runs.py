"""Training runs in real workers of Ray Train: what reached training, and when.

The counterpart of ``trainer_ranks``: the same data and model; checkpoints are reported to Ray.
"""

import argparse
import json
import os
import signal
import tempfile
import warnings
from pathlib import Path

import torch

from lengthwise.integrations.ray import every_row, ray_loader, ray_stream
from lengthwise.loader import BucketBatchSampler
from support.trainer_kinds import OPTIONS, Rows, Tiny, all_lengths, loading

STATE = "loader.json"
EPOCHS, SAVE_EPOCH, SAVE_AFTER = 3, 1, 4


def run_workers(folder, num_workers, *, resume=None, die_after=None):
    """Train to the end; in epoch 1 the run saves a checkpoint after the fourth batch.

    Args:
        folder: a new one, for what the workers saw and for Ray's own files.
        num_workers: of the trainer.
        resume: folder of the run whose checkpoint to begin from.
        die_after: batches after which the process of the last rank is killed, once.

    Returns:
        For each rank a list of attempts, each a list of (epoch, samples of a batch).
    """
    folder.mkdir()
    config = {
        "folder": str(folder),
        "checkpoint": None if resume is None else (resume / "checkpoint").read_text(),
        "die_after": die_after,
        "num_workers": 2 if die_after else 0,  # processes that fetch ahead
    }
    result = fit(train, folder, num_workers, config, max_failures=int(die_after is not None))
    (folder / "checkpoint").write_text(result.checkpoint.path if result.checkpoint else "")
    return [attempts(folder, rank) for rank in range(num_workers)]


def attempts(folder, rank):
    files = sorted(folder.glob(f"rank{rank}-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [[tuple(json.loads(line)) for line in file.read_text().splitlines()] for file in files]


def fit(function, folder, num_workers, config, *, max_failures=0, **more):
    """Run a function in workers that together take half a CPU, so that Ray Data has one, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(
                num_workers=num_workers, resources_per_worker={"CPU": 0.5 / num_workers}
            ),
            run_config=RunConfig(
                name="run",
                storage_path=str(folder / "ray"),
                failure_config=FailureConfig(max_failures=max_failures),
            ),
            **more,
        )
        return trainer.fit()


def train(config):
    """One worker; nothing calls ``set_epoch``."""
    import ray.train

    torch.set_num_threads(1)
    options = argparse.Namespace(**config)
    rank = ray.train.get_context().get_world_rank()
    last = rank == ray.train.get_context().get_world_size() - 1
    torch.manual_seed(rank)
    loader = ray_loader(Rows(), BucketBatchSampler(all_lengths(), **OPTIONS), **loading(options))
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None and options.checkpoint is not None:
        checkpoint = ray.train.Checkpoint(options.checkpoint)
    if checkpoint is not None:
        with checkpoint.as_directory() as saved:
            loader.load_state_dict(json.loads((Path(saved) / STATE).read_text()))
    record = Record(Path(options.folder), rank, options.die_after if last else None)
    model = torch.nn.parallel.DistributedDataParallel(Tiny(record))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while loader.state_dict()["epoch"] < EPOCHS:
        record.epoch = loader.state_dict()["epoch"]
        for batch in loader:
            model(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            state = loader.state_dict()
            if (state["epoch"], state["step"]) == (SAVE_EPOCH, SAVE_AFTER):
                report(state, rank)


def report(state, rank):
    """Save as Ray Train has it, and wait until its controller has taken note."""
    import ray.train

    with tempfile.TemporaryDirectory() as made:
        (Path(made) / STATE).write_text(json.dumps(state))
        ours = ray.train.Checkpoint.from_directory(made) if rank == 0 else None
        ray.train.report({}, checkpoint=ours)
    ray.train.get_all_reported_checkpoints()


class Record:
    """Notes the batches at once; may have its process killed after some, in the first attempt."""

    def __init__(self, folder, rank, die_after):
        self.file = folder / f"rank{rank}-{os.getpid()}.jsonl"
        self.died = folder / "died"
        self.left = None if self.died.exists() else die_after
        self.epoch = 0

    def batch(self, indices):
        with self.file.open("a") as file:
            file.write(json.dumps([self.epoch, [int(index) for index in indices]]) + "\n")
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.died.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def stream_rows(config):
    """One worker that takes its shard of Ray Data for two epochs."""
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    shard = ray.train.get_dataset_shard("train")
    batches = ray_stream(shard, "tokens", max_tokens=200, buffer_samples=64)
    epochs = [
        [[(int(row["id"]), len(row["tokens"])) for row in batch] for batch in batches]
        for _ in range(2)
    ]
    seen = {"epochs": epochs, "next": batches.state_dict()["epoch"]}
    (Path(config["folder"]) / f"rank{rank}.json").write_text(json.dumps(seen))


def run_stream(folder, dataset, num_workers):
    """What each worker took of a data set: ``epochs``, each a list of batches of (id, length)."""
    folder.mkdir()
    config = {"folder": str(folder)}
    datasets = {"train": dataset}
    fit(stream_rows, folder, num_workers, config, datasets=datasets, dataset_config=every_row())
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(num_workers)]
