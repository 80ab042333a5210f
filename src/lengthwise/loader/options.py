"""The settings of a sampler as keywords: the fields of BatchingConfig and BatchLimits."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TypedDict

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lengthwise.core.config import BatchSizing, Oversize, Strategy
    from lengthwise.core.order import Balance, Order


class BatchingOptions(TypedDict, total=False):
    """Keywords that make a config; BatchingConfig and BatchLimits explain them."""

    max_tokens: int
    max_batch_size: int | None
    pad_to_multiple_of: int
    batch_size_multiple_of: int
    strategy: Strategy
    boundaries: Sequence[int] | None
    num_buckets: int | None
    window_size: int | None
    target_efficiency: float | None
    batch_sizing: BatchSizing
    order: Order
    accumulation_steps: int
    balance: Balance
    pad_to_boundary: bool
    oversize: Oversize
    drop_last: bool
    num_batches: int | None
    shards_per_group: int | None
    seed: int


_LIMITS = tuple(field.name for field in fields(BatchLimits))


def config_of(config: BatchingConfig | None, options: Mapping[str, object]) -> BatchingConfig:
    """The config given, or made of keywords.

    Raises:
        ConfigError: both or neither are given, or a keyword is unknown.
    """
    if config is not None:
        if options:
            raise ConfigError(
                f"config= holds every setting; do not give {', '.join(options)} beside it (use "
                f"dataclasses.replace to change a field of a config)"
            )
        if not isinstance(config, BatchingConfig):
            raise ConfigError(f"config must be a BatchingConfig, got {config!r}")
        return config
    if "max_tokens" not in options:
        raise ConfigError("give max_tokens, the padded tokens a batch may hold, or config=")
    limits = {name: options[name] for name in _LIMITS if name in options}
    others = {name: value for name, value in options.items() if name not in limits}
    return BatchingConfig.from_dict({"limits": limits, **others})
