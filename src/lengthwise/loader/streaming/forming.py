"""Which buffered samples make the next batch: decisions on a rising list of lengths.

Nothing here holds a sample, reads a stream or keeps state. ``tests/support/twins_streaming.py``
says the same in definitions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Protocol

from lengthwise.core.random import mix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lengthwise.core.limits import BatchLimits

NUM_CANDIDATES = 2
"""Batches a pool looks at before it takes the tightest: see ``docs/guides/streaming.md``."""
_BUCKET_TRIES = 8
_MEMBER_WORDS = 16
"""First word of a batch's stream that draws members; the ones below choose places."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What is random about one batch.

    Attributes:
        key: of the batch's own stream.
        stratum: which of ``num_strata`` equal parts of the buffer it is drawn from, so that the
            batches of an optimiser step come from all lengths.
        num_strata: batches of an optimiser step.
        pinned: place of a sample that has waited too long and must be in the batch, or ``None``.
    """

    key: int
    stratum: int = 0
    num_strata: int = 1
    pinned: int | None = None

    def place(self, word: int, size: int, *, anywhere: bool = False) -> int:
        """A random place below ``size``, in the batch's stratum unless that is empty."""
        lo = size * self.stratum // self.num_strata
        hi = size * (self.stratum + 1) // self.num_strata
        if anywhere or lo == hi:
            lo, hi = 0, size
        return lo + (mix(self.key, word) * (hi - lo) >> 64)


class FormingRule(Protocol):
    """How buffered samples come together."""

    def choose(self, lengths: Sequence[int], draw: Draw, most: int) -> Sequence[int]:
        """Rising places of the next batch, at least one and at most ``most``."""
        ...

    def partition(self, lengths: Sequence[int], key: int) -> list[Sequence[int]]:
        """All places as batches: what is left when the stream has ended."""
        ...

    def padded_length(self, longest: int) -> int:
        """Tokens that each sample of a batch counts as, for the longest of the batch."""
        ...


@dataclass(frozen=True, slots=True)
class NeighbourRule:
    """Batches of neighbours in length: the fullest legal run that ends at a random place.

    Of two random places the one whose run spans fewer tokens is taken. That keeps the buffer dense
    where samples are rare, which costs least padding for a given buffer.

    Args:
        limits: the batch limits; no length may be above ``longest_allowed``.
    """

    limits: BatchLimits

    def choose(self, lengths: Sequence[int], draw: Draw, most: int) -> range:
        """See :class:`FormingRule`."""
        if draw.pinned is not None:
            return self.run_at(lengths, draw.pinned, most)
        runs = [
            self.run_at(lengths, draw.place(word, len(lengths)), most)
            for word in range(NUM_CANDIDATES)
        ]
        return min(runs, key=lambda run: lengths[run[-1]] - lengths[run[0]])

    def run_at(self, lengths: Sequence[int], place: int, most: int) -> range:
        """The fullest legal run that ends at ``place``; at the bottom, the fullest there is."""
        limits = self.limits
        size = whole_size(min(limits.batch_size_for(lengths[place]), most), limits)
        stop = place + 1
        if size <= stop:
            return range(stop - size, stop)
        top = min(len(lengths), most)
        while stop < top and stop < limits.batch_size_for(lengths[stop]):
            stop += 1
        return range(whole_size(stop, limits))

    def partition(self, lengths: Sequence[int], key: int) -> list[Sequence[int]]:  # noqa: ARG002
        """Runs from the longest down, each as full as it may be; nothing random about them."""
        runs: list[Sequence[int]] = []
        stop = len(lengths)
        while stop:
            fits = self.limits.batch_size_for(lengths[stop - 1])
            size = whole_size(min(fits, stop), self.limits)
            runs.append(range(stop - size, stop))
            stop -= size
        return runs

    def padded_length(self, longest: int) -> int:
        """See :class:`FormingRule`."""
        return self.limits.padded_length(longest)


@dataclass(frozen=True, slots=True)
class BucketRule:
    """Batches of random samples of one bucket, in random order as long as they are legal.

    Args:
        limits: the batch limits.
        boundaries: K + 1 rising integers; bucket k holds ``[b[k], b[k + 1])``. Shorter samples
            belong to the first bucket, longer ones to the last.
        pad_to_boundary: every batch counts as padded to the top of its bucket.
    """

    limits: BatchLimits
    boundaries: tuple[int, ...]
    pad_to_boundary: bool = False

    def choose(self, lengths: Sequence[int], draw: Draw, most: int) -> list[int]:
        """Of a random sample's bucket, if that fills a batch; else of the bucket nearest to it."""
        starts = self._starts(lengths)
        bucket = self._bucket(lengths, starts, draw)
        lo, hi = starts[bucket], starts[bucket + 1]
        places = _random_order(range(lo, hi), draw.key, _MEMBER_WORDS, first=draw.pinned)
        return sorted(self._prefix(lengths, islice(places, most)))

    def partition(self, lengths: Sequence[int], key: int) -> list[Sequence[int]]:
        """Each bucket's samples in random order, cut into batches as full as they may be."""
        batches: list[Sequence[int]] = []
        for bucket, (lo, hi) in enumerate(pairwise(self._starts(lengths))):
            places = list(_random_order(range(lo, hi), mix(key, bucket), 0))
            while places:
                batch = self._prefix(lengths, places)
                batches.append(sorted(batch))
                places = places[len(batch) :]
        return batches

    def padded_length(self, longest: int) -> int:
        """See :class:`FormingRule`."""
        if self.pad_to_boundary:
            inner = self.boundaries[1:-1]
            longest = self.boundaries[1 + bisect_right(inner, longest)] - 1
        return self.limits.padded_length(longest)

    def _fits(self, longest: int) -> int:
        return self.limits.batch_size_for(self.padded_length(longest))

    def _starts(self, lengths: Sequence[int]) -> list[int]:
        """Where each bucket begins among the rising lengths, and where the last ends."""
        inner = (bisect_left(lengths, edge) for edge in self.boundaries[1:-1])
        return [0, *inner, len(lengths)]

    def _bucket(self, lengths: Sequence[int], starts: list[int], draw: Draw) -> int:
        if draw.pinned is not None:
            return bisect_right(starts, draw.pinned, hi=len(starts) - 1) - 1
        for word in range(_BUCKET_TRIES):
            place = draw.place(word, len(lengths), anywhere=2 * word >= _BUCKET_TRIES)
            bucket = bisect_right(starts, place, hi=len(starts) - 1) - 1
            stop = starts[bucket + 1]
            if stop - starts[bucket] >= self._fits(lengths[stop - 1]):
                return bucket
        shares = [
            (stop - start) / self._fits(lengths[stop - 1]) if stop > start else 0.0
            for start, stop in pairwise(starts)
        ]
        return shares.index(max(shares))

    def _prefix(self, lengths: Sequence[int], places: Iterable[int]) -> list[int]:
        """The places, in this order, that a batch takes before the next one does not fit."""
        batch: list[int] = []
        longest, fits = -1, 0
        for place in places:
            if lengths[place] > longest:
                longest = lengths[place]
                fits = self._fits(longest)
            if len(batch) >= fits:
                break
            batch.append(place)
        return batch[: whole_size(len(batch), self.limits)]


def whole_size(size: int, limits: BatchLimits) -> int:
    """``size`` rounded down to ``batch_size_multiple_of``, unless it is below that."""
    step = limits.batch_size_multiple_of
    return size // step * step if size >= step else size


def _random_order(
    places: range, key: int, first_word: int, *, first: int | None = None
) -> Iterator[int]:
    """The places in random order; ``first`` (if given) before all others."""
    if first is not None:
        yield first
    moved: dict[int, int] = {}
    count = len(places)
    for drawn in range(count):
        other = drawn + (mix(key, first_word + drawn) * (count - drawn) >> 64)
        place = places[moved.get(other, other)]
        moved[other] = moved.get(drawn, drawn)
        if place != first:
            yield place
