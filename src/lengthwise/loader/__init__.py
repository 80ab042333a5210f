"""The torch edge of a plan: what a training loop uses."""

from lengthwise.loader.batch_sampler import BucketBatchSampler
from lengthwise.loader.data_loader import ResumableDataLoader

__all__ = ["BucketBatchSampler", "ResumableDataLoader"]
