"""DFlash: block-diffusion drafters for speculative decoding, from training data to export."""

from lengthwise.dflash.attention import BlockAttention
from lengthwise.dflash.cache import ContextCache
from lengthwise.dflash.config import DrafterConfig, choose_taps
from lengthwise.dflash.dataset import PreparedDataset
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import export_drafter, load_native

__all__ = [
    "BlockAttention",
    "ContextCache",
    "Drafter",
    "DrafterConfig",
    "PreparedDataset",
    "choose_taps",
    "export_drafter",
    "load_native",
]
