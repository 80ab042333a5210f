"""Conversations in, training samples out: what ``lengthwise dflash prepare`` does."""

from lengthwise.dflash.prepare.run import Device, Summary, prepare
from lengthwise.dflash.prepare.settings import (
    GenerationSettings,
    PrepareConfig,
    RowSettings,
    SampleSettings,
    ServerSettings,
    TemplateSettings,
)

__all__ = [
    "Device",
    "GenerationSettings",
    "PrepareConfig",
    "RowSettings",
    "SampleSettings",
    "ServerSettings",
    "Summary",
    "TemplateSettings",
    "prepare",
]
