"""Which replica this process is: the only place that asks torch for a rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

MOST_REPLICAS = 2**31


@dataclass(frozen=True, slots=True)
class Replica:
    """One of the processes that train together on different data.

    Args:
        rank: this replica's number, from 0.
        num_replicas: how many there are.

    Raises:
        ConfigError: a number that cannot be.
    """

    rank: int = 0
    num_replicas: int = 1

    def __post_init__(self) -> None:
        """Refuse a rank that no replica has."""
        count = require_int("num_replicas", self.num_replicas, least=1, most=MOST_REPLICAS)
        rank = require_int("rank", self.rank, least=0, most=MOST_REPLICAS)
        if rank >= count:
            raise ConfigError(f"rank must be below num_replicas ({count:,}), got {rank:,}")
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "num_replicas", count)

    @classmethod
    def current(cls) -> Replica:
        """As torch.distributed has it; the only replica where it is not initialised."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @classmethod
    def of(cls, rank: int | None, num_replicas: int | None) -> Replica:
        """The given numbers; what is not given comes from torch.distributed.

        Raises:
            ConfigError: only one is given, and the other cannot be found or does not fit.
        """
        if rank is not None and num_replicas is not None:
            return cls(rank, num_replicas)
        found = cls.current()
        if rank is not None:
            return cls(rank, found.num_replicas)
        if num_replicas is None:
            return found
        if num_replicas not in (1, found.num_replicas):
            raise ConfigError(
                f"num_replicas={num_replicas!r} was given without rank, and torch.distributed "
                f"has {found.num_replicas:,} processes: which of the replicas is this one? "
                f"Give rank= too."
            )
        return cls(found.rank if num_replicas == found.num_replicas else 0, num_replicas)
