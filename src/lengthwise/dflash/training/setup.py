"""From a config to everything a run needs: models loaded, data divided, steps planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.dataset import PreparedDataset
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats.load import load_checkpoint
from lengthwise.dflash.target import load_ends, load_target, load_target_config, target_bytes
from lengthwise.dflash.training.checkpoint import CheckpointStore
from lengthwise.dflash.training.data import divide
from lengthwise.dflash.training.held_out import HeldOutEvaluator
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.loop import TrainingLoop
from lengthwise.dflash.training.places import place_in
from lengthwise.dflash.training.plan import TrainingPlan
from lengthwise.dflash.training.remote_checkpoint import RemoteCheckpointStore
from lengthwise.dflash.training.source import LocalSource, TargetRunner
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from lengthwise.dflash.target.ends import FrozenEnds
    from lengthwise.dflash.target.model import Target
    from lengthwise.dflash.target.sizes import TargetBytes
    from lengthwise.dflash.training.checkpoint import Checkpoints, Saver
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.training.progress import Observer


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What a run consists of before its first step.

    Attributes:
        config: the run's.
        device: where target and drafter run.
        target: the frozen model.
        drafter: with its first weights, float32, on the device.
        data: what is trained on and held out.
        plan: the epochs.
    """

    config: TrainConfig
    device: torch.device
    target: Target
    drafter: Drafter
    data: TrainingData
    plan: TrainingPlan

    @property
    def output_dir(self) -> Path:
        """Where the run writes."""
        return Path(self.config.output_dir)

    @property
    def drafter_dir(self) -> Location:
        """Where the trained drafter goes at the end."""
        return place_in(self.config.shared_dir, "drafter")

    @property
    def pool_bytes(self) -> int:
        """Memory of the samples that wait between target and drafter, at most."""
        config = self.config
        tokens = config.remix.pool_batches * config.batching.max_tokens
        width = self.drafter.config.feature_size * self.target.dtype.itemsize
        return min(tokens, self.data.num_tokens) * width


def set_up(config: TrainConfig) -> Setup:
    """Load and check everything a config names.

    Raises:
        ConfigError: a value that does not fit the target or the machine.
        ModelError: no such model, or a drafter that does not fit the target.
        DataError: data that cannot be trained on.
    """
    device = choose_device(config.device)
    data = load_data(config)
    target = load_target_of(config, device)
    drafter = make_drafter(config, target.config, target.ends.num_embeddings)
    return Setup(config, device, target, drafter.to(device), data, TrainingPlan(data, config))


def store_of(config: TrainConfig) -> Checkpoints:
    """The checkpoints of a run."""
    place, keep = place_in(config.shared_dir, "checkpoints"), config.checkpoint.keep
    if isinstance(place, str):
        return RemoteCheckpointStore(place, keep)
    return CheckpointStore(place, keep)


def assemble(setup: Setup, store: Saver, observer: Observer) -> TrainingLoop:
    """The loop that trains on one device, all in this process."""
    config, data = setup.config, setup.data
    learner = Learner(
        setup.drafter,
        setup.target.ends,
        config,
        total_steps=setup.plan.num_steps,
        skipped_path=setup.output_dir / "skipped.jsonl",
        boundaries=data.length_boundaries(),
    )
    # Samples wait in ordinary memory: on a GPU they would take it from the target.
    runner = TargetRunner(
        setup.target, data.dataset, setup.drafter.config.target_layer_ids, torch.device("cpu")
    )
    evaluator = HeldOutEvaluator(setup.target, learner, data.held_out, config)
    return TrainingLoop(
        config,
        setup.plan,
        learner,
        LocalSource(runner),
        store=store,
        evaluator=evaluator if evaluator.prompts else None,
        observer=observer,
        drafter_dir=setup.drafter_dir,
        target_config=setup.target.config,
    )


def load_target_of(config: TrainConfig, device: torch.device) -> Target:
    """The target a config names."""
    section = config.target
    return load_target(
        section.model,
        dtype=section.dtype,
        device=device,
        gguf_file=section.gguf_file,
        attn_implementation=section.attn_implementation,
        revision=section.revision,
        trust_remote_code=section.trust_remote_code,
    )


def load_ends_of(config: TrainConfig, device: torch.device) -> FrozenEnds:
    """Embedding and head of the target a config names, without the rest of it."""
    section = config.target
    return load_ends(
        section.model,
        dtype=section.dtype,
        device=device,
        gguf_file=section.gguf_file,
        revision=section.revision,
        trust_remote_code=section.trust_remote_code,
    )


def target_bytes_of(config: TrainConfig) -> TargetBytes | None:
    """What the weights of the target a config names take; None where that is not known."""
    section = config.target
    return target_bytes(
        section.model,
        dtype=section.dtype,
        gguf_file=section.gguf_file,
        revision=section.revision,
        trust_remote_code=section.trust_remote_code,
    )


def target_facts(config: TrainConfig) -> tuple[PretrainedConfig, torch.dtype]:
    """Configuration and dtype of the target a config names, without its weights."""
    section = config.target
    return load_target_config(
        section.model,
        dtype=section.dtype,
        gguf_file=section.gguf_file,
        revision=section.revision,
        trust_remote_code=section.trust_remote_code,
    )


def choose_device(name: str) -> torch.device:
    """The device a config names.

    Raises:
        ConfigError: torch knows no such device, or this machine has none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device: {name!r} cannot be used here: {error}") from None
    return device


def load_data(config: TrainConfig) -> TrainingData:
    """Open the prepared samples and divide them."""
    section = config.data
    return divide(
        PreparedDataset(section.train),
        max_anchors=config.step.max_anchors,
        max_tokens=config.batching.max_tokens if config.batching.oversize == "drop" else None,
        held_out=PreparedDataset(section.held_out) if section.held_out else None,
        num_held_out=section.num_held_out,
        seed=config.seed,
    )


def make_drafter(
    config: TrainConfig, target_config: PretrainedConfig, num_embeddings: int
) -> Drafter:
    """A new drafter, or the one to continue from; float32, on the CPU."""
    section = config.drafter
    if section.init_from is not None:
        return load_checkpoint(section.init_from, target_config=target_config).drafter
    return Drafter(drafter_config(config, target_config, num_embeddings), seed=config.seed)


def count_weights(sizes: DrafterConfig) -> int:
    """Weights of a drafter, without making it."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in Drafter(sizes).parameters())


def drafter_config(
    config: TrainConfig, target_config: PretrainedConfig, num_embeddings: int | None = None
) -> DrafterConfig:
    """The sizes of the drafter.

    Args:
        config: the run's.
        target_config: the target's.
        num_embeddings: rows of its embedding table; None takes its config's word.
    """
    section = config.drafter
    if section.init_from is not None:
        return load_checkpoint(section.init_from, target_config=target_config).config
    assert section.mask_token_id is not None, "the config has checked it"
    return DrafterConfig.for_target(
        target_config,
        mask_token_id=section.mask_token_id,
        num_hidden_layers=section.num_hidden_layers,
        block_size=section.block_size,
        num_taps=section.num_taps,
        target_layer_ids=section.target_layer_ids,
        sliding_window=section.sliding_window,
        vocab_size=num_embeddings,
    )
