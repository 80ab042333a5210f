"""Plans of fixed batch sizes: nothing stored for an epoch, any batch in constant time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.core.course import NO_REST, Course, course_of
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
        tail_ends: where each tail batch ends; int64, (T,).
        num_batches: batches of every epoch.
        num_split: full batches that were cut in two.
        num_dropped_batches: batches that ``drop_last`` leaves out each epoch.
        num_dropped_samples: samples in them.
    """

    groups: Int64Array
    tails: Int64Array
    tail_ends: Int64Array
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
    table = _tail_table(tails, num_full * sizes)
    return FixedLayout(
        groups=np.column_stack(
            (np.cumsum(num_batches) - num_batches, sizes, num_full, np.cumsum(counts) - counts)
        ),
        tails=table,
        tail_ends=table.sum(axis=1),
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
    most = [(-int(number), group) for group, number in enumerate(num_full)]
    heapify(most)
    for _ in range(surplus):
        number, group = most[0]
        heapreplace(most, (number + 1, group))
    for number, group in most:
        num_full[group] = -number


def _split_full(
    num_full: Int64Array,
    sizes: Int64Array,
    tails: list[list[int]],
    missing: int,
    limits: BatchLimits,
) -> None:
    """Cut full batches in two, from the group with most; then tail batches, the largest first."""
    most = [(-int(n), group) for group, n in enumerate(num_full) if sizes[group] >= 2]
    heapify(most)
    given = np.zeros(num_full.size, np.int64)
    while missing and most and most[0][0] < 0:
        number, group = most[0]
        heapreplace(most, (number + 1, group))
        given[group] += 1
        missing -= 1
    for group in np.flatnonzero(given).tolist():
        num_full[group] -= given[group]
        tails[group][:0] = _halves(int(sizes[group]), limits) * int(given[group])
    for _ in range(missing):
        group = max(range(len(tails)), key=lambda g: max(tails[g], default=0))
        whole = max(tails[group])
        tails[group].remove(whole)
        tails[group][:0] = _halves(whole, limits)


def _halves(whole: int, limits: BatchLimits) -> list[int]:
    second = int(second_half(np.int64(whole), limits.batch_size_multiple_of))
    return [whole - second, second]


@dataclass(frozen=True, slots=True, eq=False)
class FixedBatches:
    """The batches of one epoch, or of what is left of it, computed when asked for.

    Attributes:
        prepared: the grouped samples.
        course: everything that a batch is computed from.
    """

    prepared: Prepared
    course: Course

    @classmethod
    def of_epoch(
        cls, prepared: Prepared, layout: FixedLayout, epoch: int, num_replicas: int
    ) -> FixedBatches:
        """The batches of this epoch; costs one key per group, and a row per shard."""
        return cls(prepared, course_of(prepared, layout, epoch, num_replicas))

    def __len__(self) -> int:
        """Number of batches."""
        return self.course.num_computed + len(self.course.rest)

    def batch(self, index: int) -> Int64Array:
        """Sample indices of batch ``index``; int64."""
        from lengthwise.core.kernels.fixed import batch_at

        return batch_at(index, self.course)

    def gather(self, indices: Int64Array) -> tuple[npt.NDArray[Any], Int64Array]:
        """Samples of the batches at ``indices``, as :meth:`Batches.gather`."""
        from lengthwise.core.kernels.fixed import fill_all

        places = self.places(indices)
        edges = np.zeros(indices.size + 1, np.int64)
        np.cumsum(places[:, 2], out=edges[1:])
        samples = np.empty(int(edges[-1]), np.uint32)
        fill_all(self.course, places, edges[:-1], samples)
        return samples, edges

    def places(self, indices: Int64Array) -> Int64Array:
        """Group, first place inside it, and size of the batches at ``indices``; shape (n, 3)."""
        from lengthwise.core.kernels.fixed import place_some

        places = np.empty((indices.size, 3), np.int64)
        places[:, 0] = indices
        place_some(self.course, places)
        return places

    def table(self, num_threads: int, indices: Int64Array | None = None) -> Batches:
        """All batches of the epoch (or those at ``indices``), as stored plans have them."""
        from lengthwise.core.kernels.fixed import fill_all

        places = self.places(np.arange(len(self)) if indices is None else indices)
        sizes = np.ascontiguousarray(places[:, 2])
        starts = np.cumsum(sizes) - sizes
        order = np.empty(int(sizes.sum()), np.uint32)

        def fill(first: int) -> None:
            part = slice(first, first + _TASK)
            fill_all(self.course, places[part], starts[part], order)

        run_all([partial(fill, first) for first in range(0, len(places), _TASK)], num_threads)
        floors = self.prepared.padding_floors()[places[:, 0]]
        return measure_batches(order, starts, sizes, floors, self.prepared)

    def after(self, num_done: int, num_replicas: int) -> tuple[FixedBatches, int]:
        """What is left after so many batches, in a number that the replicas divide.

        The order stays as it was. Where the number does not divide, batches at the end are cut in
        two, the largest first, or with ``drop_last`` left out. What that takes depends on the
        number of replicas alone: about four batches for each that is missing are looked at.

        Returns:
            The rest, and samples that were dropped.

        Raises:
            PlanError: there are fewer samples than replicas left.
        """
        left = len(self) - num_done
        surplus = left % num_replicas
        if self.prepared.config.drop_last:
            lost = self.places(np.arange(len(self) - surplus, len(self)))
            return self._cut(num_done, left - surplus, NO_REST), int(lost[:, 2].sum())
        if not surplus:
            return self._cut(num_done, left, NO_REST), 0
        missing = num_replicas - surplus
        room = min(left, 4 * missing)
        while True:
            ends = self.places(np.arange(len(self) - room, len(self)))
            samples = int(ends[:, 2].sum())
            if samples >= room + missing:
                break
            if room == left:
                raise PlanError(
                    f"{samples:,} samples cannot give each of {num_replicas:,} replicas as many "
                    f"batches: {left + missing:,} are needed. Use fewer replicas."
                )
            room = min(left, 4 * room)
        multiple = self.prepared.config.limits.batch_size_multiple_of
        return self._cut(num_done, left - room, _halved(ends, missing, multiple)), 0

    def _cut(self, num_done: int, number: int, ends: Int64Array) -> FixedBatches:
        """Batches from ``num_done`` on, so many of them, and then these."""
        course = self.course
        computed = min(number, max(0, course.num_computed - num_done))
        skipped = max(0, num_done - course.num_computed)
        rows = course.rest[skipped : skipped + number - computed]
        return replace(
            self,
            course=course._replace(
                first=course.first + num_done,
                num_computed=computed,
                rest=np.concatenate((rows, ends)),
            ),
        )


def _halved(places: Int64Array, missing: int, multiple: int) -> Int64Array:
    """Cut the batches of most samples in two until there are so many more; halves come last."""
    while missing:
        largest = np.argsort(-places[:, 2], kind="stable")
        largest = largest[: min(missing, int(np.count_nonzero(places[:, 2] >= 2)))]
        halves = places[largest]
        halves[:, 2] = second_half(halves[:, 2], multiple)
        places[largest, 2] -= halves[:, 2]
        halves[:, 1] += places[largest, 2]
        places = np.concatenate((places, halves))
        missing -= largest.size
    return places
