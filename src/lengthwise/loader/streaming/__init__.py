"""Streams: batches of like length from data whose lengths are known only as samples pass."""

from lengthwise.loader.streaming.batcher import StreamingBucketBatcher
from lengthwise.loader.streaming.config import StreamingConfig
from lengthwise.loader.streaming.stats import StreamStats

__all__ = ["StreamStats", "StreamingBucketBatcher", "StreamingConfig"]
