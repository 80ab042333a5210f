"""What a run trains on: which samples, how long they are, how many blocks each can give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.random import Purpose, derive_key, mix
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.dataset import PreparedDataset

NUM_CLASSES = 5
"""Length classes whose losses are told apart; as many as a plot can keep apart."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """A prepared data set, divided into what is trained on, what is held out and what is no use.

    Attributes:
        dataset: the samples.
        sample_ids: those trained on, ascending; int64, shape (N,).
        lengths: their tokens, shape (N,).
        num_anchors: blocks that each gives an epoch, at least 1, shape (N,).
        held_out: prompts and answers never trained on.
        left_out: reason -> samples, for those that are in neither.
    """

    dataset: PreparedDataset
    sample_ids: Int64Array
    lengths: Int64Array
    num_anchors: Int64Array
    held_out: HeldOut
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        """Real tokens of an epoch."""
        return int(self.lengths.sum())

    def length_boundaries(self, num_classes: int = NUM_CLASSES) -> tuple[int, ...]:
        """K + 1 rising lengths that cut the samples into classes ``[lo, hi)``.

        Each class gives about equally many blocks an epoch, so that their losses are about equally
        well known. K is ``num_classes``, or less where there are fewer lengths.
        """
        order = np.argsort(self.lengths, kind="stable")
        reached = np.cumsum(self.num_anchors[order])
        shares = np.arange(1, num_classes) * int(reached[-1]) / num_classes
        inner = self.lengths[order[np.searchsorted(reached, shares)]]
        edges = np.concatenate(([self.lengths.min()], inner, [self.lengths.max() + 1]))
        return tuple(np.unique(edges).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Samples for evaluation.

    Attributes:
        dataset: where they are.
        sample_ids: which, shape (H,).
    """

    dataset: PreparedDataset
    sample_ids: Int64Array


def divide(
    dataset: PreparedDataset,
    *,
    max_anchors: int,
    max_tokens: int | None = None,
    held_out: PreparedDataset | None = None,
    num_held_out: int = 0,
    seed: int = 0,
) -> TrainingData:
    """Decide what happens to every sample of a data set.

    Left out and counted: samples in which no two supervised tokens follow each other (a block needs
    one to begin with and one to predict), and those longer than ``max_tokens``. Held out, unless
    another data set is given for that: the ``num_held_out`` samples whose numbers have the
    smallest hashes, so the choice is the same in every run of the seed.

    Args:
        dataset: prepared samples.
        max_anchors: most anchors of a sample and epoch.
        max_tokens: longest sample that is taken; None for any.
        held_out: a data set to evaluate on instead.
        num_held_out: samples to evaluate on.
        seed: the run's.

    Raises:
        DataError: nothing would be left to train on.
    """
    lengths = np.asarray(dataset.lengths, np.int64)
    anchors = np.minimum(count_valid_anchors(dataset), max_anchors).astype(np.int64)
    useless = anchors < 1
    too_long = np.zeros_like(useless) if max_tokens is None else (lengths > max_tokens) & ~useless
    usable = np.flatnonzero(~useless & ~too_long)
    if held_out is None:
        chosen = _smallest_hashes(usable, min(num_held_out, usable.size // 2), seed)
        test = HeldOut(dataset, chosen)
        usable = np.setdiff1d(usable, chosen, assume_unique=True)
    else:
        every = np.flatnonzero(count_valid_anchors(held_out) > 0)
        test = HeldOut(held_out, _smallest_hashes(every, min(num_held_out, every.size), seed))
    left_out = {
        "no two supervised tokens in a row": int(useless.sum()),
        f"longer than {max_tokens or 0:,} tokens": int(too_long.sum()),
    }
    left_out = {reason: count for reason, count in left_out.items() if count}
    if not usable.size:
        raise DataError(
            f"none of the {lengths.size:,} samples can be trained on"
            + "".join(f"; {reason}: {count:,}" for reason, count in left_out.items())
        )
    return TrainingData(dataset, usable, lengths[usable], anchors[usable], test, left_out)


def count_valid_anchors(dataset: PreparedDataset) -> Int64Array:
    """Of every sample the places at which a block can begin; int64, shape (len(dataset),).

    A place counts if it and the next are supervised. Every loss mask is read once.
    """
    counts = [np.empty(0, np.int64)]
    for file in dataset.files:
        for index in range(len(file.group_starts) - 1):
            group = file.read_group(index)
            pairs = np.concatenate(([0], np.cumsum(group.mask[:-1] & group.mask[1:])))
            # The pair of a sample's last token with the next sample's first is none of its own.
            first, last = group.mask_offsets[:-1], group.mask_offsets[1:] - 1
            counts.append((pairs[np.maximum(last, first)] - pairs[first]).astype(np.int64))
    return np.concatenate(counts)


def _smallest_hashes(sample_ids: Int64Array, count: int, seed: int) -> Int64Array:
    key = derive_key(seed, int(Purpose.HELD_OUT))
    ranked = sorted(sample_ids.tolist(), key=lambda sample: mix(key, sample))
    return np.sort(np.asarray(ranked[:count], np.int64))
