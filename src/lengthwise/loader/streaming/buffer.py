"""The bounded buffer: samples by length, and the groups that leave it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.loader.streaming.forming import whole_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.core.limits import BatchLimits


@dataclass(frozen=True, slots=True)
class Group:
    """Samples of one batch, in rising order of length.

    Attributes:
        lengths: of each sample, in tokens.
        ids: each sample's number in the stream.
        samples: what the source yielded.
    """

    lengths: list[int]
    ids: list[int]
    samples: list[Any]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.ids)

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self.lengths[-1]

    def halves(self, limits: BatchLimits) -> tuple[Group, Group]:
        """The shorter and the longer half; both sizes whole multiples where the group's is."""
        half = whole_size(len(self) // 2, limits)
        return self._part(slice(half)), self._part(slice(half, None))

    def _part(self, part: slice) -> Group:
        return Group(self.lengths[part], self.ids[part], self.samples[part])


class LengthBuffer:
    """Samples in rising order of length; equal lengths in the order of their arrival.

    Attributes:
        lengths: of each sample; rising.
        ids: each sample's number in the stream.
        samples: what the source yielded.
        num_tokens: sum of lengths.
    """

    __slots__ = ("ids", "lengths", "num_tokens", "samples")

    def __init__(self) -> None:
        """Empty."""
        self.lengths: list[int] = []
        self.ids: list[int] = []
        self.samples: list[Any] = []
        self.num_tokens = 0

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.ids)

    def add(self, length: int, number: int, sample: Any) -> None:
        """Put a sample behind those that are no longer."""
        place = bisect_right(self.lengths, length)
        self.lengths.insert(place, length)
        self.ids.insert(place, number)
        self.samples.insert(place, sample)
        self.num_tokens += length

    def add_all(self, group: Group) -> None:
        """Put all samples of a group behind those that are no longer."""
        for length, number, sample in zip(group.lengths, group.ids, group.samples, strict=True):
            self.add(length, number, sample)

    def everything(self) -> Group:
        """All samples, which stay."""
        return Group(list(self.lengths), list(self.ids), list(self.samples))

    def take(self, places: Sequence[int]) -> Group:
        """Remove the samples at rising places."""
        if isinstance(places, range):
            part = slice(places.start, places.stop)
            group = Group(self.lengths[part], self.ids[part], self.samples[part])
            del self.lengths[part], self.ids[part], self.samples[part]
        else:
            group = Group(*([column[i] for i in places] for column in self._columns()))
            for column in self._columns():
                for place in reversed(places):
                    del column[place]
        self.num_tokens -= sum(group.lengths)
        return group

    def take_all(self, parts: Sequence[Sequence[int]]) -> list[Group]:
        """Remove everything, as groups of the given places."""
        groups = [
            Group(*([column[place] for place in part] for column in self._columns()))
            for part in parts
        ]
        for column in self._columns():
            column.clear()
        self.num_tokens = 0
        return groups

    def _columns(self) -> tuple[list[int], list[int], list[Any]]:
        return self.lengths, self.ids, self.samples


def num_even_steps(groups: Sequence[Group], num_replicas: int) -> int:
    """Steps that give each of the replicas a batch, with the fewest samples left out.

    None are left out wherever batches can be split far enough, else fewer than ``num_replicas``.
    """
    steps = -(-len(groups) // num_replicas)
    num_samples = sum(map(len, groups))
    return steps if steps * num_replicas <= num_samples else steps - 1


def fit_count(
    groups: Sequence[Group], count: int, limits: BatchLimits
) -> tuple[list[Group], list[Group]]:
    """Exactly ``count`` groups: the largest are cut in two, or the smallest are left out.

    Args:
        groups: as many samples in all as ``count``, or more.
        count: how many groups are wanted.
        limits: for ``batch_size_multiple_of``.

    Returns:
        The groups, and those left out.
    """
    kept = list(groups)
    while len(kept) < count:
        place = max(range(len(kept)), key=lambda i: len(kept[i]))
        kept[place : place + 1] = kept[place].halves(limits)
    by_size = sorted(range(len(kept)), key=lambda i: len(kept[i]))
    gone = set(by_size[: len(kept) - count])
    return (
        [group for i, group in enumerate(kept) if i not in gone],
        [kept[i] for i in sorted(gone)],
    )
