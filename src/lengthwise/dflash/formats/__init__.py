"""Drafters on disk: the native format and that of ``speculators``, written, read and checked."""

from lengthwise.dflash.formats.check import CheckReport, check_export
from lengthwise.dflash.formats.export import export_drafter, serving_commands
from lengthwise.dflash.formats.load import (
    Checkpoint,
    load_checkpoint,
    load_native,
    load_speculators,
)
from lengthwise.dflash.formats.native import save_native
from lengthwise.dflash.formats.speculators import save_speculators
from lengthwise.dflash.formats.transformer import TargetFacts, read_target_config

__all__ = [
    "CheckReport",
    "Checkpoint",
    "TargetFacts",
    "check_export",
    "export_drafter",
    "load_checkpoint",
    "load_native",
    "load_speculators",
    "read_target_config",
    "save_native",
    "save_speculators",
    "serving_commands",
]
