"""Plans of fixed batch sizes: nothing stored for an epoch, any batch in constant time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.random import Purpose, stream_key
from lengthwise.core.replicas import measure_batches, second_half
from lengthwise.core.threads import run_all
from lengthwise.errors import PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.batches import Batches
    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.core.prepare import Prepared

_TASK = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class FixedLayout:
    """How many batches of which size each group gives, in every epoch.

    Batches are ranked group by group, by rising length: in each first the full ones, then its
    tail (the short last one, and full ones that were cut in two so that the replicas get equally
    many).

    Attributes:
        groups: rank of the first batch, samples of a full batch, number of full batches, first
            row in ``tails``; int64, shape (G, 4).
        tails: first place inside its group, and samples, of every tail batch; int64, (T, 2).
        num_batches: batches of every epoch.
        num_split: full batches that were cut in two.
        num_dropped_batches: batches that ``drop_last`` leaves out each epoch.
        num_dropped_samples: samples in them.
    """

    groups: Int64Array
    tails: Int64Array
    num_batches: int
    num_split: int
    num_dropped_batches: int
    num_dropped_samples: int


def lay_out(prepared: Prepared, num_replicas: int) -> FixedLayout:
    """Cut every group into batches of one size, in a number that the replicas divide.

    Raises:
        PlanError: too few samples, or ``drop_last`` would leave nothing.
    """
    limits, drop_last = prepared.config.limits, prepared.config.drop_last
    samples = np.diff(prepared.offsets)
    sizes = np.array([max(1, limits.batch_size_for(int(top))) for top in prepared.tops], np.int64)
    num_full = samples // sizes
    rest = samples - num_full * sizes
    tails = [[] if drop_last else _rest_batches(int(r), limits) for r in rest]
    total = int(num_full.sum()) + sum(map(len, tails))
    surplus = total % num_replicas
    num_split = 0
    if drop_last:
        if total < num_replicas:
            raise PlanError(
                f"drop_last=True leaves nothing: {total:,} full batches do not give each of "
                f"{num_replicas:,} replicas one. Use drop_last=False or fewer replicas."
            )
        _drop_full(num_full, surplus)
    elif surplus:
        num_split = num_replicas - surplus
        if int(samples.sum()) < total + num_split:
            raise PlanError(
                f"{int(samples.sum()):,} samples cannot give each of {num_replicas:,} replicas as "
                f"many batches: {total + num_split:,} are needed. Use fewer replicas."
            )
        _split_full(num_full, sizes, tails, num_split, limits)
    counts = np.array([len(tail) for tail in tails], np.int64)
    num_batches = num_full + counts
    planned = num_full * sizes + [sum(tail) for tail in tails]
    return FixedLayout(
        groups=np.column_stack(
            (np.cumsum(num_batches) - num_batches, sizes, num_full, np.cumsum(counts) - counts)
        ),
        tails=_tail_table(tails, num_full * sizes),
        num_batches=int(num_batches.sum()),
        num_split=num_split,
        num_dropped_batches=int(surplus + np.count_nonzero(rest)) if drop_last else 0,
        num_dropped_samples=int((samples - planned).sum()),
    )


def _rest_batches(rest: int, limits: BatchLimits) -> list[int]:
    """Batches of what does not fill a group's last batch: one, or two to keep the multiple."""
    short = rest % limits.batch_size_multiple_of
    return [size for size in (rest - short, short) if size]


def _tail_table(tails: list[list[int]], begins: Int64Array) -> Int64Array:
    """First place and samples of every tail batch, group after group; shape (T, 2)."""
    rows = []
    for tail, begin in zip(tails, begins.tolist(), strict=True):
        first = begin
        for size in tail:
            rows.append((first, size))
            first += size
    return np.array(rows, np.int64).reshape(-1, 2)


def _drop_full(num_full: Int64Array, surplus: int) -> None:
    """Take the surplus from the groups that have most batches."""
    for _ in range(surplus):
        num_full[int(np.argmax(num_full))] -= 1


def _split_full(
    num_full: Int64Array,
    sizes: Int64Array,
    tails: list[list[int]],
    missing: int,
    limits: BatchLimits,
) -> None:
    """Cut full batches in two, from the group with most; then tail batches, the largest first."""
    for _ in range(missing):
        can_give = np.where(sizes >= 2, num_full, 0)
        group = int(np.argmax(can_give))
        if can_give[group]:
            num_full[group] -= 1
            whole = int(sizes[group])
        else:
            group = max(range(len(tails)), key=lambda g: max(tails[g], default=0))
            whole = max(tails[group])
            tails[group].remove(whole)
        second = int(second_half(np.int64(whole), limits.batch_size_multiple_of))
        tails[group][:0] = [whole - second, second]


@dataclass(frozen=True, slots=True, eq=False)
class FixedBatches:
    """The batches of one epoch, computed when asked for.

    Attributes:
        prepared: the grouped samples.
        layout: sizes and counts, the same in every epoch.
        keys: the key of each group's permutation; uint64, shape (G,).
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
        """The batches of this epoch; costs one key per group."""
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
        from lengthwise.core.kernels.fixed import fill_batch, place_of_batch, rank_of_batch

        rank = rank_of_batch(index, len(self), self.per_unit, self.per_step, self.order_key)
        group, start, size = place_of_batch(rank, self.layout.groups, self.layout.tails)
        out = np.empty(size, np.uint32)
        prepared = self.prepared
        fill_batch(prepared.words, prepared.offsets, group, start, self.keys[group], out)
        return out.astype(np.int64)

    def gather(self, indices: Int64Array) -> tuple[npt.NDArray[Any], Int64Array]:
        """Samples of the batches at ``indices``, as :meth:`Batches.gather`."""
        from lengthwise.core.kernels.fixed import fill_all
        from lengthwise.core.kernels.gather import place_some

        prepared, layout = self.prepared, self.layout
        places = np.empty((indices.size, 3), np.int64)
        places[:, 0] = indices
        place_some(
            len(self),
            self.per_unit,
            self.per_step,
            self.order_key,
            layout.groups,
            layout.tails,
            places,
        )
        edges = np.zeros(indices.size + 1, np.int64)
        np.cumsum(places[:, 2], out=edges[1:])
        samples = np.empty(int(edges[-1]), np.uint32)
        fill_all(prepared.words, prepared.offsets, places, edges[:-1], self.keys, samples)
        return samples, edges

    def table(self, num_threads: int) -> Batches:
        """All batches of the epoch, as stored plans have them."""
        from lengthwise.core.kernels.fixed import fill_all, place_all

        prepared, layout, count = self.prepared, self.layout, len(self)
        places = np.empty((count, 3), np.int64)
        place_all(self.per_unit, self.per_step, self.order_key, layout.groups, layout.tails, places)
        sizes = np.ascontiguousarray(places[:, 2])
        starts = np.cumsum(sizes) - sizes
        order = np.empty(int(sizes.sum()), np.uint32)

        def fill(first: int) -> None:
            part = slice(first, first + _TASK)
            fill_all(prepared.words, prepared.offsets, places[part], starts[part], self.keys, order)

        run_all([partial(fill, first) for first in range(0, count, _TASK)], num_threads)
        floors = prepared.padding_floors()[places[:, 0]]
        return measure_batches(order, starts, sizes, floors, prepared)
