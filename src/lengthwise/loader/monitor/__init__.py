"""Watches a training loop: throughput, time left, and a loss curve that buckets do not blur."""

from lengthwise.loader.monitor.monitor import BatchMonitor
from lengthwise.loader.monitor.writers import (
    JsonlWriter,
    TensorBoardWriter,
    TrackioWriter,
    WandbWriter,
    Writer,
)

__all__ = [
    "BatchMonitor",
    "JsonlWriter",
    "TensorBoardWriter",
    "TrackioWriter",
    "WandbWriter",
    "Writer",
]
