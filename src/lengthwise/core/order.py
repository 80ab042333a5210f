"""In which order the batches of an epoch run, on which replica, and which share a step.

``num_replicas`` batches run in lockstep: one *step*. ``accumulation_steps`` steps make one
*optimiser step*, whose gradient ought to represent the data set. Padding wants batches of one
length each, so a single batch represents nothing; which batches an optimiser step takes decides
how lopsided it is. Rearranging batches changes neither padding nor which samples meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from lengthwise.core.limits import require_int
from lengthwise.core.random import derive_key
from lengthwise.core.strata import balance_strata
from lengthwise.errors import ConfigError, PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

Order = Literal["shuffled", "stratified", "balanced"]
Balance = Literal["bucket", "cost", "none"]

_BATCHES, _BLOCKS, _STRATA, _STEPS, _MICRO_STEPS, _REPLICAS = range(6)
"""One random stream each."""


@dataclass(frozen=True, slots=True)
class OrderRule:
    """How the batches of an epoch are put in order.

    Args:
        order: which batches make an optimiser step. ``"shuffled"``: any. ``"stratified"``: units
            (see ``balance``) are ranked by mean length and cut into as many strata of equal
            count as an optimiser step has units; each step takes one from each stratum, at
            random. ``"balanced"``: from there, units of one stratum change places between
            steps so that every step's mean length comes close to the data set's.
        balance: what runs in lockstep. ``"none"``: an optimiser step is made of single batches;
            inside it, those of like cost run together. ``"cost"``: the unit is a block of
            ``num_replicas`` batches of like cost, which run together. ``"bucket"``: the same,
            and a block has batches of one bucket wherever there are enough of them. With blocks
            no replica waits for another, but an optimiser step has ``accumulation_steps`` units
            to choose and not ``num_replicas`` times as many, so it represents the data less.
        num_replicas: batches that run at the same time.
        accumulation_steps: steps of one optimiser step.

    Raises:
        ConfigError: a value is unknown or out of range.
    """

    order: Order = "shuffled"
    balance: Balance = "none"
    num_replicas: int = 1
    accumulation_steps: int = 1

    def __post_init__(self) -> None:
        """Refuse unknown names and counts below 1."""
        for name, known in (("order", get_args(Order)), ("balance", get_args(Balance))):
            if getattr(self, name) not in known:
                choices = ", ".join(repr(value) for value in known)
                raise ConfigError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        for name in ("num_replicas", "accumulation_steps"):
            value = require_int(name, getattr(self, name), least=1)
            object.__setattr__(self, name, value)

    @property
    def unit_size(self) -> int:
        """Batches of a unit: what is moved as one."""
        return 1 if self.balance == "none" else self.num_replicas

    @property
    def batches_per_step(self) -> int:
        """Batches of an optimiser step."""
        return self.num_replicas * self.accumulation_steps

    @property
    def units_per_step(self) -> int:
        """Units of an optimiser step; also the number of strata."""
        return self.batches_per_step // self.unit_size


def arrange(
    tokens: Int64Array,
    sizes: Int64Array,
    costs: npt.NDArray[Any],
    bucket_ids: Int64Array | None,
    *,
    rule: OrderRule,
    key: int,
) -> Int64Array:
    """Put batches into the order in which they run.

    Position ``s * num_replicas + r`` of the result is step ``s`` of replica ``r``; optimiser step
    ``t`` is positions ``t * batches_per_step`` and following. Where the batches do not fill the
    last optimiser step it is drawn at random, not balanced, and stands last, so that all others
    stay aligned. The order of optimiser steps, of the steps inside one, and of the replicas
    inside a step is random, so nothing rises or falls over the epoch and no replica is special.

    Args:
        tokens: real tokens of each batch, shape (B,).
        sizes: samples of each batch, at least 1, shape (B,).
        costs: what a batch costs to run, in any unit, finite, shape (B,).
        bucket_ids: the bucket of each batch, shape (B,), ordered like their lengths; only read
            (and then required) where ``rule.balance`` is ``"bucket"``.
        rule: how.
        key: of the random stream, from :func:`lengthwise.core.random.stream_key`.

    Returns:
        A permutation of ``range(B)``, int64, which depends on the arguments alone: it is the same
        on every platform.

    Raises:
        PlanError: B is not a multiple of ``num_replicas``, or shapes differ.
    """
    _check(tokens, sizes, costs, bucket_ids, rule)
    blocks = _cut_blocks(costs, bucket_ids, rule, key)
    steps, rest = _choose_steps(_by_unit(tokens, blocks), _by_unit(sizes, blocks), rule, key)
    order = np.empty(tokens.size, np.int64)
    boundary = steps.size * rule.unit_size
    order[:boundary] = _deal(blocks[steps], costs, rule, derive_key(key, 1))
    order[boundary:] = _deal(blocks[rest], costs, rule, derive_key(key, 2))
    return order


def _check(
    tokens: Int64Array,
    sizes: Int64Array,
    costs: npt.NDArray[Any],
    bucket_ids: Int64Array | None,
    rule: OrderRule,
) -> None:
    """Refuse arrays that do not belong together."""
    arrays = {"tokens": tokens, "sizes": sizes, "costs": costs}
    if bucket_ids is not None:
        arrays["bucket_ids"] = bucket_ids
    elif rule.balance == "bucket":
        raise PlanError("balance 'bucket' needs bucket_ids; use 'cost' where there are no buckets")
    shapes = {name: array.shape for name, array in arrays.items()}
    if tokens.ndim != 1 or len(set(shapes.values())) != 1:
        raise PlanError(f"arrays of batches must be one-dimensional and of one shape, got {shapes}")
    if tokens.size % rule.num_replicas:
        raise PlanError(
            f"{tokens.size:,} batches cannot be dealt to {rule.num_replicas:,} replicas in equal "
            f"numbers; drop or repeat {tokens.size % rule.num_replicas:,} first"
        )


def _shuffled(size: int, key: int, stream: int) -> Int64Array:
    """``range(size)`` in random order."""
    from lengthwise.core.kernels.random import shuffle_range

    places = np.arange(size, dtype=np.int64)
    shuffle_range(places, 0, size, np.uint64(derive_key(key, stream)))
    return places


def _shuffle_rows(matrix: Int64Array, key: int, stream: int) -> None:
    """Each row of ``matrix`` in its own random order, in place."""
    from lengthwise.core.kernels.random import shuffle_rows

    shuffle_rows(matrix, np.uint64(derive_key(key, stream)))


def _cut_blocks(
    costs: npt.NDArray[Any], bucket_ids: Int64Array | None, rule: OrderRule, key: int
) -> Int64Array:
    """Units in random order: batch numbers, shape (units, batches of a unit)."""
    places = _shuffled(costs.size, key, _BATCHES)
    if rule.unit_size == 1:
        return places.reshape(-1, 1)
    # Sorting is stable and the places are shuffled, so ties are in random order.
    if rule.balance == "cost" or bucket_ids is None:
        places = places[np.argsort(costs[places], kind="stable")]
    else:
        places = places[np.argsort(bucket_ids[places], kind="stable")]
        places = _whole_blocks_first(places, bucket_ids[places], rule.unit_size)
    blocks = places.reshape(-1, rule.unit_size)
    return blocks[_shuffled(len(blocks), key, _BLOCKS)]


def _whole_blocks_first(places: Int64Array, ids: Int64Array, unit: int) -> Int64Array:
    """As many whole blocks of each bucket as it can fill, then what the buckets leave over."""
    _, first, counts = np.unique(ids, return_index=True, return_counts=True)
    inside = np.arange(ids.size) - np.repeat(first, counts)
    whole = inside < np.repeat(counts // unit * unit, counts)
    return np.concatenate([places[whole], places[~whole]])


def _by_unit(amounts: Int64Array, blocks: Int64Array) -> Int64Array:
    """Sums over the batches of each unit, shape (units,)."""
    if blocks.shape[1] == 1:
        return amounts[blocks[:, 0]]
    sums: Int64Array = amounts[blocks].sum(axis=1)
    return sums


def _choose_steps(
    tokens: Int64Array, sizes: Int64Array, rule: OrderRule, key: int
) -> tuple[Int64Array, Int64Array]:
    """Which units make which optimiser step.

    Args:
        tokens: real tokens of each unit, shape (U,); units are in random order.
        sizes: samples of each unit, shape (U,).
        rule: how.
        key: of the random stream.

    Returns:
        Unit numbers, shape (whole optimiser steps, units of one), and those left over.
    """
    num_strata = rule.units_per_step
    num_steps = tokens.size // num_strata
    used = np.arange(num_steps * num_strata)
    rest = np.arange(used.size, tokens.size)
    if rule.order == "shuffled" or num_strata == 1 or not num_steps:
        return used.reshape(num_steps, num_strata), rest
    ranked = used[np.argsort(tokens[used] / sizes[used], kind="stable")]
    strata = ranked.reshape(num_strata, num_steps)
    _shuffle_rows(strata, key, _STRATA)
    if rule.order == "balanced":
        mean = int(tokens.sum()) / int(sizes.sum())
        balance_strata(strata, tokens - mean * sizes)
        strata = strata[:, _shuffled(num_steps, key, _STEPS)]
    return np.ascontiguousarray(strata.T), rest


def _deal(units: Int64Array, costs: npt.NDArray[Any], rule: OrderRule, key: int) -> Int64Array:
    """Lay optimiser steps out as steps and replicas.

    Args:
        units: batches, shape (optimiser steps, units, batches of a unit), or (units, batches of a
            unit) for one shorter optimiser step.
        costs: of each batch of the epoch.
        rule: how.
        key: of the random stream.

    Returns:
        Batch numbers by position, shape (batches in ``units``,).
    """
    if not units.size:
        return np.empty(0, np.int64)
    num_steps = units.shape[0] if units.ndim == 3 else 1
    micro = units.reshape(num_steps, -1, rule.num_replicas)
    if rule.balance == "none" and micro.shape[1] > 1:
        flat = micro.reshape(num_steps, -1)
        by_cost = np.argsort(costs[flat], axis=1, kind="stable")
        micro = np.take_along_axis(flat, by_cost, axis=1).reshape(micro.shape)
    rows = np.ascontiguousarray(micro).reshape(-1, rule.num_replicas)
    _shuffle_rows(rows, key, _REPLICAS)
    places = np.arange(len(rows), dtype=np.int64).reshape(num_steps, -1)
    _shuffle_rows(places, key, _MICRO_STEPS)
    return rows[places.reshape(-1)].reshape(-1)
