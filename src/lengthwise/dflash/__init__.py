"""DFlash: block-diffusion drafters for speculative decoding, from training data to export.

Names are imported when first used: reading a training config needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.dflash.anchors import draw_anchors
    from lengthwise.dflash.batch import DraftBatch, Sample, pack_rows, pad_rows
    from lengthwise.dflash.config import DrafterConfig, choose_taps
    from lengthwise.dflash.dataset import PreparedDataset
    from lengthwise.dflash.decoding import evaluate, generate, speculate
    from lengthwise.dflash.drafter import Drafter
    from lengthwise.dflash.formats import export_drafter, load_native
    from lengthwise.dflash.loss import LossConfig
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.optimizer import OptimizerConfig, build_optimizer
    from lengthwise.dflash.schedule import ScheduleConfig
    from lengthwise.dflash.step import draft_step
    from lengthwise.dflash.target import Target, load_target, load_tokenizer, samples_of
    from lengthwise.dflash.training.config import TrainConfig, read_train_config
    from lengthwise.dflash.update import Update

_HOME = {
    "DraftBatch": "batch",
    "DraftSums": "metrics",
    "Drafter": "drafter",
    "DrafterConfig": "config",
    "LossConfig": "loss",
    "OptimizerConfig": "optimizer",
    "PreparedDataset": "dataset",
    "Sample": "batch",
    "ScheduleConfig": "schedule",
    "Target": "target",
    "TrainConfig": "training.config",
    "Update": "update",
    "build_optimizer": "optimizer",
    "choose_taps": "config",
    "draft_step": "step",
    "draw_anchors": "anchors",
    "evaluate": "decoding",
    "export_drafter": "formats",
    "generate": "decoding",
    "load_native": "formats",
    "load_target": "target",
    "load_tokenizer": "target",
    "pack_rows": "batch",
    "pad_rows": "batch",
    "read_train_config": "training.config",
    "samples_of": "target",
    "speculate": "decoding",
}
"""Public name -> the module that defines it."""

__all__ = [
    "DraftBatch",
    "DraftSums",
    "Drafter",
    "DrafterConfig",
    "LossConfig",
    "OptimizerConfig",
    "PreparedDataset",
    "Sample",
    "ScheduleConfig",
    "Target",
    "TrainConfig",
    "Update",
    "build_optimizer",
    "choose_taps",
    "draft_step",
    "draw_anchors",
    "evaluate",
    "export_drafter",
    "generate",
    "load_native",
    "load_target",
    "load_tokenizer",
    "pack_rows",
    "pad_rows",
    "read_train_config",
    "samples_of",
    "speculate",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'lengthwise.dflash' has no attribute {name!r}")
    value = getattr(import_module(f"lengthwise.dflash.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, for completion."""
    return sorted(__all__)
