"""Train with Ray Train on two workers, and resume with the very next batch.

python examples/14_train_ray.py --output-dir out/ray
python examples/14_train_ray.py --output-dir out/ray --resume
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from ray.train.torch import TorchTrainer
from torch.nn.parallel import DistributedDataParallel

from lengthwise.cluster.connect import connected
from lengthwise.integrations.ray import ray_loader
from lengthwise.loader import BucketBatchSampler, TokenWeightedLoss
from tiny_language_model import COLLATE, TinyLanguageModel, loss_on, run_options, samples

NUM_EPOCHS, SAVE_AT = 2, 25  # a checkpoint at step 25 of each epoch


def train(config: dict[str, Any]) -> None:
    """One worker: two epochs, or what the checkpoint leaves of them."""
    data = samples()
    sampler = BucketBatchSampler([len(row["input_ids"]) for row in data], max_tokens=4096)
    loader = ray_loader(data, sampler, collate_fn=COLLATE)
    model = DistributedDataParallel(TinyLanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_function = TokenWeightedLoss(shift=True)
    parts: dict[str, Any] = {"model": model.module, "optimizer": optimizer, "loader": loader}
    if checkpoint := get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "state.pt")
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    for _ in range(loader.state_dict()["epoch"], NUM_EPOCHS):
        for batch in loader:
            loss_function.begin_step(batch["labels"])  # the step's tokens, on all workers
            loss_function(model(batch["input_ids"]), batch["labels"]).backward()
            optimizer.step()
            optimizer.zero_grad()
            if loader.state_dict()["step"] == SAVE_AT:
                save({name: part.state_dict() for name, part in parts.items()})
    if get_context().get_world_rank() == 0:
        torch.save(model.module.state_dict(), config["model"])


def save(state: dict[str, Any]) -> None:
    """All workers report; the state is the same on each, so the first one's is kept."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "state.pt")
        first = get_context().get_world_rank() == 0
        report({}, checkpoint=Checkpoint.from_directory(folder) if first else None)


def main() -> None:
    """Ray Train finds a run's last checkpoint by its name, after a failure as well."""
    options = run_options(__doc__)
    output = options.output_dir.resolve()
    if not options.resume:
        shutil.rmtree(output / "run", ignore_errors=True)
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
    run = RunConfig(name="run", storage_path=str(output))
    config = {"model": str(output / "model.pt")}
    with connected():  # the cluster of RAY_ADDRESS, else this machine alone
        TorchTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=run).fit()
    model = TinyLanguageModel()
    model.load_state_dict(torch.load(output / "model.pt"))
    print(f"loss {loss_on(model, samples()[:50]):.4f}")


if __name__ == "__main__":
    main()
