"""From a stream to batches on one replica: read, measure, buffer, form."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lengthwise.core.random import Purpose, mix, stream_key
from lengthwise.errors import LengthwiseWarning
from lengthwise.loader.streaming.buffer import Group, LengthBuffer
from lengthwise.loader.streaming.forming import BucketRule, Draw, NeighbourRule
from lengthwise.loader.streaming.learning import DriftWatch
from lengthwise.loader.streaming.stats import StreamStats

if TYPE_CHECKING:
    from lengthwise.loader.distributed import Replica
    from lengthwise.loader.streaming.config import StreamingConfig
    from lengthwise.loader.streaming.forming import FormingRule
    from lengthwise.loader.streaming.intake import Intake
    from lengthwise.loader.streaming.learning import Learned
    from lengthwise.loader.streaming.source import Reader

Item = TypeVar("Item")

LOOK_EVERY = 16
"""Every so many batches the sample that has waited longest is looked at."""
PATIENCE = 16
"""One that has waited for so many whole buffers of samples is taken."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The random streams of one pass.

    Attributes:
        batches: of the batches that this replica decides about.
        strata: of their strata; the same on all replicas.
    """

    batches: int
    strata: int

    @classmethod
    def of(cls, seed: int, epoch: int, decider: int) -> Keys:
        """For the replica that decides; 0 where all decide alike."""
        return cls(
            stream_key(seed, epoch, Purpose.STREAM, decider),
            stream_key(seed, epoch, Purpose.STRATA),
        )


class Feed:
    """Keeps a buffer of samples filled, and forms batches from it.

    Args:
        config: every choice.
        replica: who reads; decides numbers and random streams.
        reader: where samples come from.
        intake: measures them and applies the oversize policy.
        keys: random streams.
        learned: boundaries found so far; filled in where the config asks for it.

    Attributes:
        buffer: samples to choose from.
        alone: samples that each are a batch on their own.
        num_formed: batches formed so far.
        stats: what has been read, yielded and left out.
    """

    def __init__(
        self,
        config: StreamingConfig,
        replica: Replica,
        reader: Reader,
        intake: Intake,
        keys: Keys,
        learned: Learned,
    ) -> None:
        """Nothing is read yet."""
        self.config, self.reader, self.intake = config, reader, intake
        self.buffer = LengthBuffer()
        self.alone: list[Group] = []
        self.num_formed = 0
        self.stats = StreamStats()
        self._keys, self._learned = keys, learned
        self._scale, self._offset = _numbering(config, replica)
        self._num_strata = config.accumulation_steps * replica.num_replicas
        self._strata: tuple[int, list[int]] = (-1, [])
        self._watch = _watch(config, learned)
        self._rule = _rule(config, learned)
        self._inside = config.boundaries

    @property
    def num_held(self) -> int:
        """Samples held, in the buffer and beside it."""
        return len(self.buffer) + len(self.alone)

    @property
    def room(self) -> int:
        """Samples, of any length allowed, that the buffer can surely take."""
        config, buffer = self.config, self.buffer
        room = config.buffer_samples - len(buffer)
        if config.buffer_tokens is None:
            return room
        tokens = config.buffer_tokens - buffer.num_tokens
        return min(room, tokens // self.intake.longest_allowed)

    def fill(self, num_alone: int) -> None:
        """Read until the buffer is full, the stream ends, or ``num_alone`` samples stand alone."""
        while not self.reader.exhausted and self.room > 0 and len(self.alone) < num_alone:
            self._read(self.room, num_alone)
        self.stats.num_read = self.reader.num_read

    def _read(self, most: int, num_alone: int) -> None:
        measure, add, longest = self.intake.measure, self.buffer.add, self.intake.longest_allowed
        scale, offset = self._scale, self._offset
        for number, sample in self.reader.read(most):
            length = measure(sample, number)
            if length > longest:
                self._take_oversize(length, number, sample)
                if len(self.alone) >= num_alone:
                    break
                continue
            add(length, number * scale + offset, sample)
            if self._watch is not None:
                self._watch.add(length)
            elif self._inside is not None:
                self._notice_outside(length, number)

    def _take_oversize(self, length: int, number: int, sample: Any) -> None:
        admitted = self.intake.admit(length, number, sample, self.stats)
        if admitted is None:
            return
        identity = number * self._scale + self._offset
        if admitted.length > self.intake.longest_allowed:
            self.alone.append(Group([admitted.length], [identity], [admitted.sample]))
        else:
            self.buffer.add(admitted.length, identity, admitted.sample)

    def form(self, index: int, most: int) -> Group:
        """The next batch from the buffer, which must be full or hold the rest of the stream.

        Args:
            index: its number among the batches of all replicas, which decides its stratum.
            most: samples that it may take.
        """
        lengths = self.buffer.lengths
        key = mix(self._keys.batches, self.num_formed)
        draw = Draw(key, self._stratum(index), self._num_strata, self._overdue())
        self.num_formed += 1
        return self.buffer.take(self._rule_now().choose(lengths, draw, most))

    @property
    def num_batches_held(self) -> int:
        """Batches that the samples held would make, were they the last ones."""
        if not len(self.buffer):
            return len(self.alone)
        parts = self._rule_now().partition(self.buffer.lengths, self._keys.batches)
        return len(self.alone) + len(parts)

    def take_rest(self) -> list[Group]:
        """Everything held, as batches in random order; for when the stream has ended."""
        key = mix(self._keys.batches, self.num_formed)
        groups = list(self.alone)
        self.alone.clear()
        if len(self.buffer):
            groups += self.buffer.take_all(self._rule_now().partition(self.buffer.lengths, key))
        return shuffled(groups, key)

    def padded_tokens(self, group: Group) -> int:
        """What a batch costs; a sample alone may be longer than the limits allow."""
        if group.longest > self.intake.longest_allowed:
            return self.config.limits.padded_length(group.longest)
        return len(group) * self._rule_now().padded_length(group.longest)

    def _stratum(self, index: int) -> int:
        """Each block of ``num_strata`` batches takes every stratum once, in random order."""
        block, inside = divmod(index, self._num_strata)
        if self._strata[0] != block:
            order = shuffled(list(range(self._num_strata)), mix(self._keys.strata, block))
            self._strata = (block, order)
        return self._strata[1][inside]

    def _overdue(self) -> int | None:
        """Now and then: the place of the sample that has waited longest, if that is too long."""
        patience = PATIENCE * self.config.buffer_samples * self.reader.every
        if self.num_formed % LOOK_EVERY or self.reader.num_read <= patience:
            return None
        oldest = min(self.buffer.ids)
        if self.reader.num_read - oldest // self._scale <= patience:
            return None
        return self.buffer.ids.index(oldest)

    def _rule_now(self) -> FormingRule:
        """The rule; where boundaries are to be learned, from what is buffered for the first time.

        No batch has been formed then, so the buffer holds all samples that were read.
        """
        if self._rule is None:
            assert self.config.num_buckets is not None
            arrival = sorted(zip(self.buffer.ids, self.buffer.lengths, strict=True))
            first = [length for _, length in arrival[: self.config.warmup_samples]]
            self._learned.learn(first, self.config)
            self._rule = _rule(self.config, self._learned)
            self._watch = _watch(self.config, self._learned)
        assert self._rule is not None
        return self._rule

    def _notice_outside(self, length: int, number: int) -> None:
        assert self._inside is not None
        if self._inside[0] <= length < self._inside[-1]:
            return
        nearest = "first" if length < self._inside[0] else "last"
        warnings.warn(
            f"sample {number:,} of the stream has {length:,} tokens, outside the boundaries "
            f"[{self._inside[0]:,}, {self._inside[-1]:,}); it and others like it join the "
            f"{nearest} bucket, whose batches stay within the limits but are padded more",
            LengthwiseWarning,
            stacklevel=2,
        )
        self._inside = None


def shuffled(items: list[Item], key: int) -> list[Item]:
    """The items in random order (Fisher and Yates), changed in place."""
    for last in range(len(items) - 1, 0, -1):
        other = mix(key, (1 << 32) + last) * (last + 1) >> 64
        items[last], items[other] = items[other], items[last]
    return items


def _numbering(config: StreamingConfig, replica: Replica) -> tuple[int, int]:
    """Factor and summand that turn a number in a source into one unique over all replicas."""
    own_source = config.sharding == "sharded"
    return (replica.num_replicas, replica.rank) if own_source else (1, 0)


def _rule(config: StreamingConfig, learned: Learned) -> FormingRule | None:
    if config.num_buckets is not None:
        edges = learned.boundaries
        return None if edges is None else BucketRule(config.limits, edges)
    if config.boundaries is not None:
        return BucketRule(config.limits, config.boundaries, config.pad_to_boundary)
    return NeighbourRule(config.limits)


def _watch(config: StreamingConfig, learned: Learned) -> DriftWatch | None:
    if config.warmup_samples is None or learned.histogram is None:
        return None
    return DriftWatch(learned.histogram, config.warmup_samples)
