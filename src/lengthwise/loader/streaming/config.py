"""How to batch a stream: every choice in one frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from lengthwise.core.config import BatchingConfig, Oversize
from lengthwise.core.limits import BatchLimits, require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Sharding = Literal["replicated", "strided", "sharded"]
StateSamples = Literal["store", "replay"]

DEFAULT_BUFFER = 2048
DEFAULT_SYNC_EVERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingConfig:
    """Every choice of a streaming batcher, apart from the source.

    Args:
        limits: what a batch may hold at most.
        buffer_samples: samples held back to choose from. Default 2048: on the run's distribution
            98.8 % efficiency; twice as many give 99.4 % and twice the repeats and memory.
        buffer_tokens: tokens held back at most, real ones; ``None`` leaves it to
            ``buffer_samples``.
        boundaries: K + 1 rising integers: batches are random samples of one bucket. Default:
            neighbours in length, without buckets.
        num_buckets: learn the best boundaries for this many buckets from the first samples.
        warmup_samples: how many to learn from; at most and by default ``buffer_samples``. Every
            later window of as many is compared with them, and a drift warned about.
        pad_to_boundary: count every batch as padded to the top of its bucket, for fixed shapes;
            needs ``boundaries``. The collator pads to it (``PadCollator(pad_to=boundaries)``).
        accumulation_steps: batches that an optimiser step takes on each replica; they are drawn
            from all lengths.
        oversize: a sample that fits no batch: ``"error"`` (default) stops; ``"drop"`` leaves it
            out; ``"truncate"`` has ``truncate_fn`` cut it; ``"single"`` gives it a batch of its
            own, the only kind that may exceed ``max_tokens``.
        drop_last: where the last batches do not divide by the replicas, drop the surplus. Default
            False: split batches until they do.
        sharding: what each of several replicas reads. ``"replicated"`` (default): the whole stream,
            the same on all; each takes its share of every step. ``"strided"``: the whole stream,
            but every ``num_replicas``-th sample is kept. ``"sharded"``: what its own source
            yields, which must be another part of the data on every replica. The last two agree
            through torch.distributed.
        sync_every: steps between two agreements (``strided`` and ``sharded``).
        state_samples: a state holds the buffered samples (``"store"``), or their numbers, to be
            read again (``"replay"``).
        seed: any integer; with the epoch it decides everything random.

    Raises:
        ConfigError: a value or combination that cannot work.
    """

    limits: BatchLimits
    buffer_samples: int = DEFAULT_BUFFER
    buffer_tokens: int | None = None
    boundaries: tuple[int, ...] | None = None
    num_buckets: int | None = None
    warmup_samples: int | None = None
    pad_to_boundary: bool = False
    accumulation_steps: int = 1
    oversize: Oversize = "error"
    drop_last: bool = False
    sharding: Sharding = "replicated"
    sync_every: int = DEFAULT_SYNC_EVERY
    state_samples: StateSamples = "store"
    seed: int = 0

    def __post_init__(self) -> None:
        """Normalise; refuse what cannot work."""
        shared = self._checked_by_planner()
        for name in ("boundaries", "num_buckets", "accumulation_steps", "seed"):
            object.__setattr__(self, name, getattr(shared, name))
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}"
                )
        self._require("buffer_samples", least=1)
        self._require("sync_every", least=1)
        if self.buffer_tokens is not None:
            self._require("buffer_tokens", least=1)
        self._check_learning()
        self._check_boundary()
        if self.state_samples == "replay" and self.sharding != "replicated":
            raise ConfigError(
                f"state_samples='replay' reads samples again, but with sharding="
                f"{self.sharding!r} some may come from other replicas: use state_samples='store'"
            )

    def _checked_by_planner(self) -> BatchingConfig:
        """The settings that a plan has too, checked by the same rules."""
        return BatchingConfig(
            limits=self.limits,
            boundaries=self.boundaries,
            num_buckets=self.num_buckets,
            pad_to_boundary=self.pad_to_boundary,
            accumulation_steps=self.accumulation_steps,
            oversize=self.oversize,
            drop_last=self.drop_last,
            seed=self.seed,
        )

    def _require(self, name: str, *, least: int) -> None:
        object.__setattr__(self, name, require_int(name, getattr(self, name), least=least))

    def _check_learning(self) -> None:
        if self.num_buckets is None:
            if self.warmup_samples is not None:
                raise ConfigError("warmup_samples belongs to num_buckets, which learns from them")
            return
        warmup = self.buffer_samples if self.warmup_samples is None else self.warmup_samples
        object.__setattr__(self, "warmup_samples", warmup)
        self._require("warmup_samples", least=1)
        if warmup > self.buffer_samples:
            raise ConfigError(
                f"warmup_samples ({warmup:,}) must be at most buffer_samples "
                f"({self.buffer_samples:,}), which holds them meanwhile"
            )

    def _check_boundary(self) -> None:
        if not self.pad_to_boundary:
            return
        if self.boundaries is None:
            raise ConfigError(
                "pad_to_boundary needs boundaries=[...]: the collator must know what is padded to "
                "(`lengthwise optimize` finds them)"
            )
        top = self.boundaries[-1] - 1
        if self.limits.padded_length(top) > self.limits.max_tokens:
            raise ConfigError(
                f"pad_to_boundary pads to {top:,} tokens in the last bucket, above max_tokens "
                f"({self.limits.max_tokens:,}): lower the last boundary"
            )

    @property
    def longest_allowed(self) -> int:
        """The longest sample that fits a batch, in tokens."""
        longest = self.limits.longest_allowed
        if self.pad_to_boundary and self.boundaries is not None:
            return min(longest, self.boundaries[-1] - 1)
        return longest

    def least_buffered(self, num_replicas: int) -> int:
        """Samples that a full buffer must hold, so that every step and the end can be dealt."""
        return 1 if num_replicas == 1 else 2 * num_replicas

    def check_buffer(self, num_replicas: int) -> None:
        """Refuse a buffer that is too small for this many replicas.

        Raises:
            ConfigError: with what is needed.
        """
        samples = self.least_buffered(num_replicas)
        if self.buffer_samples < samples:
            raise ConfigError(
                f"buffer_samples must be at least {samples:,} for {num_replicas:,} replicas, got "
                f"{self.buffer_samples:,}"
            )
        tokens = samples * self.longest_allowed
        if self.buffer_tokens is not None and self.buffer_tokens < tokens:
            raise ConfigError(
                f"buffer_tokens must be at least {tokens:,} for {num_replicas:,} replicas "
                f"({samples:,} samples of the longest length allowed), got {self.buffer_tokens:,}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the fields of ``limits`` among the others."""
        values = asdict(self)
        limits = values.pop("limits")
        if values["boundaries"] is not None:
            values["boundaries"] = list(values["boundaries"])
        return {**limits, **values}


_CHOICES: dict[str, tuple[str, ...]] = {
    "sharding": get_args(Sharding),
    "state_samples": get_args(StateSamples),
}
_LIMITS = tuple(field.name for field in fields(BatchLimits))


class StreamingOptions(TypedDict, total=False):
    """Keywords that make a config; StreamingConfig and BatchLimits explain them."""

    max_tokens: int
    max_batch_size: int | None
    pad_to_multiple_of: int
    batch_size_multiple_of: int
    buffer_samples: int
    buffer_tokens: int | None
    boundaries: Sequence[int] | None
    num_buckets: int | None
    warmup_samples: int | None
    pad_to_boundary: bool
    accumulation_steps: int
    oversize: Oversize
    drop_last: bool
    sharding: Sharding
    sync_every: int
    state_samples: StateSamples
    seed: int


def config_of(config: StreamingConfig | None, options: Mapping[str, Any]) -> StreamingConfig:
    """The config given, or made of keywords.

    Raises:
        ConfigError: both or neither are given, or a keyword is unknown.
    """
    if config is not None:
        if options:
            raise ConfigError(
                f"config= holds every setting; do not give {', '.join(options)} beside it"
            )
        return config
    known = StreamingOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown setting {name}; known: {', '.join(sorted(known))}")
    if "max_tokens" not in options:
        raise ConfigError("give max_tokens, the padded tokens a batch may hold, or config=")
    limits = BatchLimits(**{name: options[name] for name in _LIMITS if name in options})
    others = {name: value for name, value in options.items() if name not in _LIMITS}
    return StreamingConfig(limits=limits, **others)
