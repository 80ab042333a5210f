"""The torch edge of a plan: what a training loop uses."""

from lengthwise.loader.batch_sampler import BucketBatchSampler
from lengthwise.loader.data_loader import ResumableDataLoader
from lengthwise.loader.from_dataset import lengths_of
from lengthwise.loader.loss import StepLoss, TokenWeightedLoss, count_tokens, token_weighted_loss
from lengthwise.loader.monitor import BatchMonitor
from lengthwise.loader.pack import PackCollator
from lengthwise.loader.pad import PadCollator
from lengthwise.loader.streaming import StreamingBucketBatcher, StreamingConfig, StreamStats

__all__ = [
    "BatchMonitor",
    "BucketBatchSampler",
    "PackCollator",
    "PadCollator",
    "ResumableDataLoader",
    "StepLoss",
    "StreamStats",
    "StreamingBucketBatcher",
    "StreamingConfig",
    "TokenWeightedLoss",
    "count_tokens",
    "lengths_of",
    "token_weighted_loss",
]
