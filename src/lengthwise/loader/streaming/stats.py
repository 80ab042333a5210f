"""Exact totals of a pass over a stream."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class StreamStats:
    """What one pass has read, yielded and left out so far, on this replica.

    Attributes:
        num_read: samples read from the source, those of other replicas included.
        num_samples: samples yielded.
        num_batches: batches yielded.
        real_tokens: tokens of the samples yielded.
        padded_tokens: padded tokens of the batches yielded.
        num_oversize: samples read that are longer than a batch may be.
        num_dropped_oversize: of them, those that were dropped.
        num_truncated: of them, those that were cut.
        num_split_batches: batches that were cut in two at the end, for equal counts.
        num_dropped_samples: samples left out at the end, for equal counts.
    """

    num_read: int = 0
    num_samples: int = 0
    num_batches: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    num_oversize: int = 0
    num_dropped_oversize: int = 0
    num_truncated: int = 0
    num_split_batches: int = 0
    num_dropped_samples: int = 0

    @property
    def efficiency(self) -> float:
        """Real over padded tokens; 0 before the first batch."""
        return self.real_tokens / self.padded_tokens if self.padded_tokens else 0.0

    def to_dict(self) -> dict[str, int]:
        """All counts by name."""
        return asdict(self)
