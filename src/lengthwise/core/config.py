"""How to batch: every choice in one frozen value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from lengthwise.core.limits import BatchLimits, require_int
from lengthwise.core.order import Balance, Order
from lengthwise.errors import ConfigError

Strategy = Literal["pooled", "windowed", "bucketed", "sorted", "random"]
BatchSizing = Literal["greedy", "fixed"]
Oversize = Literal["error", "drop", "truncate", "single"]

DEFAULT_WINDOW = 1024
LOCKSTEP_FROM = 8
"""From this many accumulation steps on, replicas get batches of equal cost by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """Every choice of a plan, apart from the lengths, the epoch and the number of replicas.

    Args:
        limits: what a batch may hold at most.
        strategy: how samples come together.
            ``"pooled"``: samples, longest first, are dealt at random to the free slots of a pool
            of open batches. The most diverse batches for a given efficiency; the default, unless
            buckets are asked for.
            ``"windowed"``: shuffle, sort inside windows, pack. With ``boundaries`` or
            ``num_buckets`` the windows lie inside the buckets.
            ``"bucketed"``: shuffle inside length buckets, pack. The default with ``boundaries``
            or ``num_buckets``.
            ``"sorted"``: by length, the same batches every epoch; the frozen baseline.
            ``"random"``: shuffle, pack; the length-blind baseline.
        boundaries: K + 1 rising integers; bucket k holds lengths in ``[b[k], b[k + 1])``.
        num_buckets: find the best boundaries for this many buckets instead.
        window_size: samples in a window (``windowed`` only), but at most a quarter of its bucket
            (or of all samples), so that batches change. Default 1024: on the run's
            distribution 97.4 % efficiency, 0.08 % of pairs met again.
        target_efficiency: real over padded tokens that ``pooled`` aims at; it then mixes as widely
            as that allows. Default: 0.98, two percent of padding being less than any fixed buckets
            of equal diversity waste; but where more than about 5 % of pairs would meet again in the
            next epoch (small data sets), mixing goes first.
        batch_sizing: ``"greedy"`` fills each batch to the budget. ``"fixed"`` gives each bucket
            one batch size, so that the number of batches never changes and any batch of any epoch
            is computed in constant time without a stored plan.
        order: which batches make an optimiser step: ``"balanced"`` (default for greedy) steps that
            represent the data's lengths, ``"stratified"`` (default for fixed) one batch from each
            length stratum, ``"shuffled"`` random. The same where a step has one batch.
        accumulation_steps: batches that an optimiser step takes on each replica.
        balance: what runs at the same time on the replicas: ``"cost"`` batches of nearly equal
            padded tokens, ``"bucket"`` of one bucket, ``"none"`` any, so that ``order`` deals over
            replicas too. Default: ``"cost"`` from 8 accumulation steps on (enough for an
            optimiser step to represent the data), else ``"none"``.
        pad_to_boundary: pad every batch to the longest of its bucket (fixed shapes for compiled
            graphs) instead of its own longest.
        oversize: a sample that fits no batch: ``"error"`` (default) lists them; ``"drop"`` leaves
            them out; ``"truncate"`` counts on the loader to cut them to the budget; ``"single"``
            gives each a batch of its own, the only batches that may exceed ``max_tokens``.
        drop_last: where batches do not divide by the replicas, drop the surplus (and, with fixed
            sizing, each bucket's short last batch). Default False: split batches until they do,
            so that every sample is seen.
        num_batches: every epoch has this many batches, over all replicas and rounded up to a
            multiple of them: those of most samples are cut in two until it has, and nothing is
            dropped. For trainers that take one epoch's length for every epoch's;
            :meth:`~lengthwise.Planner.evened` finds the number. Default: as many as packing gives,
            which varies a little from epoch to epoch.
        shards_per_group: for data in shards that are fetched from afar: every epoch plans so many
            shards at a time, others in every epoch, as if they were all there is, so that only
            they need be at hand. A group has shards of all mean lengths. Needs to know the shards;
            see :class:`~lengthwise.Planner`. Default: all samples are mixed with all, since a
            group represents the data less (``docs/concepts/large-data.md`` has what it costs).
        seed: any integer; with the epoch it decides everything random.

    Raises:
        ConfigError: a value or combination that cannot work.
    """

    limits: BatchLimits
    strategy: Strategy = None  # type: ignore[assignment]  # resolved below
    boundaries: tuple[int, ...] | None = None
    num_buckets: int | None = None
    window_size: int | None = None
    target_efficiency: float | None = None
    batch_sizing: BatchSizing = "greedy"
    order: Order = None  # type: ignore[assignment]  # resolved below
    accumulation_steps: int = 1
    balance: Balance = None  # type: ignore[assignment]  # resolved below
    pad_to_boundary: bool = False
    oversize: Oversize = "error"
    drop_last: bool = False
    num_batches: int | None = None
    shards_per_group: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Resolve the defaults that depend on other fields; refuse what cannot work."""
        if not isinstance(self.limits, BatchLimits):
            raise ConfigError(f"limits must be a BatchLimits, got {self.limits!r}")
        self._resolve_buckets()
        self._resolve_choices()
        self._resolve_strategy_fields()
        for name in ("drop_last", "pad_to_boundary"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, got {getattr(self, name)!r}")
        self._put("seed", require_int("seed", self.seed, least=-(2**63), most=2**64 - 1))

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _resolve_buckets(self) -> None:
        if self.boundaries is not None and self.num_buckets is not None:
            raise ConfigError("give either boundaries or num_buckets, not both")
        if self.num_buckets is not None:
            self._put("num_buckets", require_int("num_buckets", self.num_buckets, least=1))
        if self.boundaries is None:
            return
        if not isinstance(self.boundaries, Iterable):
            raise ConfigError(f"boundaries must be a list of integers, got {self.boundaries!r}")
        edges = tuple(require_int("boundaries", edge, least=0) for edge in self.boundaries)
        if len(edges) < 2 or bool(np.any(np.diff(edges) <= 0)):
            raise ConfigError(
                f"boundaries must be at least two strictly rising integers, got {list(edges)}"
            )
        self._put("boundaries", edges)

    def _resolve_choices(self) -> None:
        has_buckets = self.boundaries is not None or self.num_buckets is not None
        fixed = self.batch_sizing == "fixed"
        accumulation = require_int("accumulation_steps", self.accumulation_steps, least=1)
        self._put("accumulation_steps", accumulation)
        defaults = {
            "strategy": "bucketed" if has_buckets or fixed else "pooled",
            "order": "stratified" if fixed else "balanced",
            "balance": "cost" if accumulation >= LOCKSTEP_FROM else "none",
        }
        for name, default in defaults.items():
            if getattr(self, name) is None:
                self._put(name, default)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}"
                )

    def _resolve_strategy_fields(self) -> None:
        has_buckets = self.boundaries is not None or self.num_buckets is not None
        wanted = {"window_size": "windowed", "target_efficiency": "pooled"}
        for name, strategy in wanted.items():
            if getattr(self, name) is not None and self.strategy != strategy:
                raise ConfigError(f"{name} belongs to strategy={strategy!r}, not {self.strategy!r}")
        if self.strategy == "windowed":
            size = DEFAULT_WINDOW if self.window_size is None else self.window_size
            self._put("window_size", require_int("window_size", size, least=1, most=2**31))
        if self.target_efficiency is not None:
            self._put("target_efficiency", _share(self.target_efficiency))
        if self.strategy == "bucketed" and not has_buckets:
            raise ConfigError(
                "strategy='bucketed' needs boundaries=[...] or num_buckets=K "
                "(`lengthwise optimize` recommends both)"
            )
        if has_buckets and self.strategy not in ("bucketed", "windowed"):
            raise ConfigError(
                f"strategy={self.strategy!r} uses no buckets: leave boundaries and num_buckets "
                f"out, or choose 'bucketed' or 'windowed'"
            )
        if not has_buckets and self.pad_to_boundary:
            raise ConfigError("pad_to_boundary needs boundaries or num_buckets to pad to")
        if not has_buckets and self.balance == "bucket":
            raise ConfigError("balance='bucket' needs boundaries or num_buckets; or use 'cost'")
        if self.num_batches is not None:
            self._put("num_batches", require_int("num_batches", self.num_batches, least=1))
        if self.shards_per_group is not None:
            number = require_int("shards_per_group", self.shards_per_group, least=1)
            self._put("shards_per_group", number)
            if self.strategy == "sorted":
                raise ConfigError(
                    "shards_per_group plans groups of shards apart, which strategy='sorted' cannot"
                )
        if self.batch_sizing == "fixed":
            self._check_fixed()

    def _check_fixed(self) -> None:
        if self.num_batches is not None:
            raise ConfigError(
                "num_batches belongs to batch_sizing='greedy'; with 'fixed' all epochs have the "
                "same number of batches anyway"
            )
        if self.strategy not in ("bucketed", "random"):
            raise ConfigError(
                f"batch_sizing='fixed' computes batches from keyed permutations of buckets: it "
                f"works with strategy 'bucketed' or 'random', not {self.strategy!r}"
            )
        if self.order == "balanced":
            raise ConfigError(
                "order='balanced' weighs all batches of an epoch against each other, which "
                "batch_sizing='fixed' never has at hand; use order='stratified'"
            )

    def with_boundaries(self, boundaries: tuple[int, ...]) -> BatchingConfig:
        """This config with ``num_buckets`` replaced by boundaries."""
        return replace(self, num_buckets=None, boundaries=boundaries)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fields of ``limits`` nested; without fields that are ``None``."""
        return _without_none(asdict(self))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BatchingConfig:
        """Build from :meth:`to_dict`'s form.

        Raises:
            ConfigError: an unknown key, or a value that cannot work.
        """
        values = dict(values)
        limits = values.pop("limits", None)
        if not isinstance(limits, dict):
            raise ConfigError("a batching config needs a [limits] table with max_tokens")
        _refuse_unknown(limits, BatchLimits, "limits.")
        _refuse_unknown(values, cls, "")
        if "max_tokens" not in limits:
            raise ConfigError("limits.max_tokens is missing")
        return cls(limits=BatchLimits(**limits), **values)


_CHOICES: dict[str, tuple[str, ...]] = {
    "strategy": get_args(Strategy),
    "batch_sizing": get_args(BatchSizing),
    "order": get_args(Order),
    "balance": get_args(Balance),
    "oversize": get_args(Oversize),
}


def _share(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ConfigError(f"target_efficiency must be between 0 and 1, got {value!r}")
    return float(value)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, tuple)
        else value
        for key, value in values.items()
        if value is not None
    }


def _refuse_unknown(values: dict[str, Any], kind: type, prefix: str) -> None:
    known = {field.name for field in fields(kind)}
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown setting {prefix}{key}; known: {', '.join(sorted(known))}")
