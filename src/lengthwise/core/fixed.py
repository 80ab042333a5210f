"""Plans of fixed batch sizes: nothing stored for an epoch, any batch in constant time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.replicas import measure_batches
from lengthwise.core.threads import run_all
from lengthwise.errors import PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.prepare import Prepared

_TASK = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class FixedLayout:
    """How many batches of which size each bucket gives, in every epoch.

    Batches are ranked bucket by bucket: in each first the full ones, then its tail (the short
    last one, and full ones that were cut in two so that the replicas get equally many).

    Attributes:
        first_batch: rank of each bucket's first batch, and the total; int64, shape (G + 1,).
        batch_sizes: samples of a full batch; int64, shape (G,).
        num_full: full batches; int64, shape (G,).
        first_tail: where each bucket's tail begins in the two arrays below; int64, shape (G,).
        tail_starts: first place of each tail batch inside its bucket; int64.
        tail_sizes: samples of each tail batch; int64.
        num_split: full batches that were cut in two.
        num_dropped_batches: batches that ``drop_last`` leaves out each epoch.
        num_dropped_samples: samples in them.
    """

    first_batch: Int64Array
    batch_sizes: Int64Array
    num_full: Int64Array
    first_tail: Int64Array
    tail_starts: Int64Array
    tail_sizes: Int64Array
    num_split: int
    num_dropped_batches: int
    num_dropped_samples: int

    @property
    def num_batches(self) -> int:
        """Batches of every epoch."""
        return int(self.first_batch[-1])

    @property
    def arrays(self) -> tuple[Int64Array, ...]:
        """The arrays in the order that the kernels take them."""
        return (
            self.first_batch,
            self.batch_sizes,
            self.num_full,
            self.first_tail,
            self.tail_starts,
            self.tail_sizes,
        )


def lay_out(prepared: Prepared, num_replicas: int) -> FixedLayout:
    """Cut every bucket into batches of one size, in a number that the replicas divide.

    Raises:
        PlanError: too few samples, or ``drop_last`` would leave nothing.
    """
    limits, drop_last = prepared.config.limits, prepared.config.drop_last
    samples = np.diff(prepared.offsets)
    sizes = np.array([max(1, limits.batch_size_for(int(top))) for top in prepared.tops], np.int64)
    num_full = samples // sizes
    rest = samples - num_full * sizes
    tails: list[list[int]] = [[int(r)] if r and not drop_last else [] for r in rest]
    total = int(num_full.sum()) + sum(map(len, tails))
    surplus = total % num_replicas
    num_split = 0
    if surplus and drop_last:
        _drop_full(num_full, surplus)
    elif surplus:
        num_split = num_replicas - surplus
        _split_full(num_full, sizes, tails, num_split)
    if drop_last and not num_full.sum():
        raise PlanError(
            f"drop_last=True leaves nothing: {total:,} full batches do not give each of "
            f"{num_replicas:,} replicas one. Use drop_last=False or fewer replicas."
        )
    dropped = samples - num_full * sizes - [sum(tail) for tail in tails]
    return _layout(
        num_full, sizes, tails, num_split, surplus + np.count_nonzero(rest), dropped, drop_last
    )


def _layout(
    num_full: Int64Array,
    sizes: Int64Array,
    tails: list[list[int]],
    num_split: int,
    num_gone: int,
    dropped: Int64Array,
    drop_last: bool,
) -> FixedLayout:
    counts = np.array([len(tail) for tail in tails], np.int64)
    tail_sizes = np.array([size for tail in tails for size in tail], np.int64)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    inside = np.cumsum(tail_sizes) - tail_sizes
    inside -= inside[before] if tail_sizes.size else 0
    tail_starts = inside + np.repeat(num_full * sizes, counts)
    return FixedLayout(
        first_batch=np.concatenate(([0], np.cumsum(num_full + counts))),
        batch_sizes=sizes,
        num_full=num_full,
        first_tail=np.cumsum(counts) - counts,
        tail_starts=tail_starts,
        tail_sizes=tail_sizes,
        num_split=num_split,
        num_dropped_batches=int(num_gone) if drop_last else 0,
        num_dropped_samples=int(dropped.sum()),
    )


def _drop_full(num_full: Int64Array, surplus: int) -> None:
    """Take the surplus from the buckets that have most batches."""
    for _ in range(min(surplus, int(num_full.sum()))):
        num_full[int(np.argmax(num_full))] -= 1


def _split_full(
    num_full: Int64Array, sizes: Int64Array, tails: list[list[int]], missing: int
) -> None:
    """Cut full batches in two, from the bucket with most; then tail batches, the largest first."""
    for _ in range(missing):
        can_give = np.where(sizes >= 2, num_full, 0)
        group = int(np.argmax(can_give))
        if can_give[group]:
            num_full[group] -= 1
            whole = int(sizes[group])
        else:
            group = max(range(len(tails)), key=lambda g: max(tails[g], default=0))
            whole = max(tails[group], default=0)
            if whole < 2:
                raise PlanError(
                    "there are fewer samples than replicas need batches; use fewer replicas"
                )
            tails[group].remove(whole)
        tails[group][:0] = [whole - whole // 2, whole // 2]


@dataclass(frozen=True, slots=True, eq=False)
class FixedBatches:
    """The batches of one epoch, computed when asked for.

    Attributes:
        prepared: the grouped samples.
        layout: sizes and counts, the same in every epoch.
        keys: the key of each bucket's permutation; uint64, shape (G,).
        order_key: the key of the order of batches.
        per_unit: neighbours by length that run at the same time.
        per_step: units of an optimiser step if stratified, else 1.
    """

    prepared: Prepared
    layout: FixedLayout
    keys: npt.NDArray[np.uint64]
    order_key: np.uint64
    per_unit: int
    per_step: int

    @classmethod
    def of_epoch(
        cls, prepared: Prepared, layout: FixedLayout, epoch: int, num_replicas: int
    ) -> FixedBatches:
        """The batches of this epoch; costs one key per bucket."""
        config = prepared.config
        keys = [
            stream_key(config.seed, epoch, Purpose.FIXED, group)
            for group in range(prepared.tops.size)
        ]
        lockstep = config.balance != "none"
        units = config.accumulation_steps * (1 if lockstep else num_replicas)
        return cls(
            prepared,
            layout,
            np.array(keys, np.uint64),
            np.uint64(stream_key(config.seed, epoch, Purpose.BATCHES)),
            num_replicas if lockstep else 1,
            units if config.order == "stratified" else 1,
        )

    def __len__(self) -> int:
        """Number of batches."""
        return self.layout.num_batches

    def batch(self, index: int) -> Int64Array:
        """Sample indices of batch ``index``; int64."""
        from lengthwise.core.kernels.fixed import (  # noqa: PLC0415
            fill_batch,
            place_of_batch,
            rank_of_batch,
        )

        rank = rank_of_batch(index, len(self), self.per_unit, self.per_step, self.order_key)
        group, start, size = place_of_batch(rank, *self.layout.arrays)
        out = np.empty(size, np.uint32)
        prepared = self.prepared
        fill_batch(prepared.words, prepared.offsets, group, start, self.keys[group], out)
        return out.astype(np.int64)

    def table(self, num_threads: int) -> Batches:
        """All batches of the epoch, as stored plans have them."""
        from lengthwise.core.kernels.fixed import fill_all, place_all  # noqa: PLC0415

        prepared, count = self.prepared, len(self)
        groups, places, sizes = (np.empty(count, np.int64) for _ in range(3))
        place_all(
            self.per_unit,
            self.per_step,
            self.order_key,
            *self.layout.arrays,
            groups,
            places,
            sizes,
        )
        starts = np.cumsum(sizes) - sizes
        order = np.empty(int(sizes.sum()), np.uint32)
        fill = partial(
            fill_all, prepared.words, prepared.offsets, groups, places, starts, sizes
        )
        tasks = [
            partial(fill, first, min(first + _TASK, count), self.keys, order)
            for first in range(0, count, _TASK)
        ]
        run_all(tasks, num_threads)
        pad_to = prepared.config.limits.pad_to_multiple_of
        floors = prepared.padding_floors()[groups]
        padded, tokens = measure_batches(order, starts, sizes, prepared.lengths, pad_to, floors)
        return Batches(order, starts, sizes, padded, tokens)
