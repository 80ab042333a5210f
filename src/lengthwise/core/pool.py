"""How wide the pool of open batches may be for a wanted efficiency.

Dealing samples from the longest to the shortest into the random free slots of a pool spreads the
members of a batch over an exponential range of neighbours. With S free slots, a member comes S
samples after the slot was opened on average, which costs ``S / density`` tokens of padding, where
density is samples per token of length nearby; and a pair that met meets again with probability
``(n - 1) / (4 S)`` in batches of n. Least repeats for a given padding therefore want
``S = scale * n * sqrt(density)``: wide where samples are many, narrow in a thin tail.

Unless told otherwise the scale aims at 98 % efficiency, but grows until no more than about 5 % of
pairs are expected to meet again: in a small data set both cannot be had, and frozen batches are
what this package is there to avoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.batches import Batches
from lengthwise.core.random import Purpose, stream_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array

DEFAULT_EFFICIENCY = 0.98
"""Two percent of padding: less than any fixed buckets of equal diversity waste."""
MOST_REPEATS = 0.05
"""Share of pairs that may meet again, by default, before diversity goes before efficiency."""
LEAST_OPEN_BATCHES = 1
"""A pool wants at least one batch's worth of free slots: two batches are open then at any time,
so no epoch is like another."""
_CALIBRATION_SAMPLES = 1 << 20
_ROUNDS = 12
_MOST_CHANGE = (1 / 64, 64.0)
_CLOSE = 2e-4
_WIDEN = 1.0625
_TRIAL_KEY = np.uint64(stream_key(0, 0, Purpose.SAMPLES))


@dataclass(frozen=True, slots=True, eq=False)
class PoolSizes:
    """Free slots that the pool keeps, per distinct length.

    Attributes:
        slots: int64, shape (D,), in the order of the histogram's lengths.
        scale: the factor found.
        efficiency: what a trial deal with these sizes reached.
    """

    slots: Int64Array
    scale: float
    efficiency: float


def limits_array(limits: BatchLimits) -> Int64Array:
    """The four numbers that the packing kernels take."""
    size = limits.size_cap
    return np.array(
        [limits.max_tokens, size, limits.pad_to_multiple_of, limits.batch_size_multiple_of],
        np.int64,
    )


def size_pool(
    histogram: LengthHistogram,
    limits: BatchLimits,
    target: float | None,
    most_repeats: float = MOST_REPEATS,
) -> PoolSizes:
    """Find the widest pool that reaches the target efficiency, by trial deals.

    Data sets above a million samples are tried on an even thinning of their lengths. The trials
    use fixed streams, so the result depends on the arguments alone.

    Args:
        histogram: lengths of the samples to plan.
        limits: the batch limits.
        target: wanted real / padded tokens, in (0, 1); None for the default rule.
        most_repeats: share of pairs that may meet again under the default rule, were the same
            samples dealt anew.
    """
    from lengthwise.core.kernels.pool import densities, expected_repeats, slots_for

    numbers = limits_array(limits)
    values, counts = histogram.lengths, histogram.counts
    thin = max(1, -(-histogram.num_samples // _CALIBRATION_SAMPLES))
    density = densities(values, counts)
    lengths = np.ascontiguousarray(histogram.to_lengths()[::thin])
    ends = np.searchsorted(lengths, values, side="right")
    begins = np.concatenate(([0], ends[:-1]))

    def slots_at(scale: float) -> Int64Array:
        return slots_for(values, density, numbers, scale, LEAST_OPEN_BATCHES)

    def trial(scale: float) -> float:
        wanted = np.maximum(slots_at(scale) // thin, 1)
        groups = np.column_stack((begins, ends, wanted, values))
        return _trial_efficiency(lengths.size, groups, numbers)

    scale, efficiency = _search(trial, DEFAULT_EFFICIENCY if target is None else target)
    if target is None:
        found = scale
        while (
            expected_repeats(values, counts, slots_at(scale), numbers) > most_repeats
            and int(slots_at(scale).min()) < histogram.num_samples
        ):
            scale *= _WIDEN
        efficiency = trial(scale) if scale > found else efficiency
    return PoolSizes(slots_at(scale), scale, efficiency)


def _search(trial: Callable[[float], float], target: float) -> tuple[float, float]:
    """Scale the pool until a trial deal comes close to the target; padding grows with scale.

    Where lengths are few the efficiency has steps, and the search goes to and fro over one.

    Returns the scale tried that came closest, and the efficiency that it reached.
    """
    wanted = 1.0 / target - 1.0
    scale = 1.0
    efficiency = trial(scale)
    closest = scale, efficiency
    for _ in range(_ROUNDS):
        if abs(efficiency - target) < _CLOSE:
            break
        padding = max(1.0 / efficiency - 1.0, 1e-9)
        scale *= min(max(wanted / padding, _MOST_CHANGE[0]), _MOST_CHANGE[1])
        efficiency = trial(scale)
        closest = min(closest, (scale, efficiency), key=lambda one: abs(one[1] - target))
    return closest


def _trial_efficiency(num_samples: int, groups: Int64Array, numbers: Int64Array) -> float:
    """Efficiency of dealing so many samples, in these groups of equal length."""
    from lengthwise.core.kernels.pack import deal_from_pool

    order = np.zeros(num_samples, np.uint32)  # which samples they are does not matter
    table = deal_from_pool(order, groups, 0, numbers, _TRIAL_KEY, order)
    dealt = Batches.of_table(order, table)
    return int(dealt.tokens.sum()) / int(dealt.padded_tokens.sum())
