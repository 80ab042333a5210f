"""Targets: the frozen language models that drafters learn from and draft for."""

from lengthwise.dflash.target.architecture import Architecture, find_architecture
from lengthwise.dflash.target.ends import FrozenEnds
from lengthwise.dflash.target.ends_load import load_ends
from lengthwise.dflash.target.load import load_target, load_target_config, load_tokenizer
from lengthwise.dflash.target.model import Target
from lengthwise.dflash.target.samples import samples_of
from lengthwise.dflash.target.sizes import TargetBytes, target_bytes
from lengthwise.dflash.target.taps import Taps

__all__ = [
    "Architecture",
    "FrozenEnds",
    "Taps",
    "Target",
    "TargetBytes",
    "find_architecture",
    "load_ends",
    "load_target",
    "load_target_config",
    "load_tokenizer",
    "samples_of",
    "target_bytes",
]
