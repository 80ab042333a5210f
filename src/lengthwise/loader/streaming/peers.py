"""What replicas tell and hand each other while they read streams of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
import torch.distributed as dist

from lengthwise.errors import ConfigError
from lengthwise.loader.distributed import Replica

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.loader.streaming.buffer import Group


class Move(NamedTuple):
    """Samples that one replica hands to another."""

    source: int
    target: int
    num_samples: int


class Peers(Protocol):
    """The replicas that must agree. All call the same methods in the same order."""

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Every replica's numbers, by rank."""
        ...

    def exchange(self, moves: Sequence[Move], parcels: Sequence[Group]) -> list[Group]:
        """Hand over samples.

        Args:
            moves: all of them, the same on every replica.
            parcels: what this replica gives, in the order of its moves.

        Returns:
            What this replica receives.
        """
        ...


class TorchPeers:
    """The processes of torch.distributed, through a gloo group of their own.

    Args:
        replica: this one; must be what torch.distributed says.
        timeout_seconds: after so long without an answer of another replica an error is raised.

    Raises:
        ConfigError: torch.distributed is not initialised, or with other processes.
    """

    def __init__(self, replica: Replica, timeout_seconds: float) -> None:
        """Make the group; all processes must do so."""
        found = Replica.current()
        if found != replica:
            raise ConfigError(
                f"replicas that read streams of their own agree through torch.distributed, which "
                f"has this process as rank {found.rank} of {found.num_replicas}, not as rank "
                f"{replica.rank} of {replica.num_replicas}. Initialise it first and leave rank and "
                f"num_replicas out, or use sharding='replicated', which needs no agreement."
            )
        self._replica = replica
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """See :class:`Peers`."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        found = [torch.empty_like(mine) for _ in range(self._replica.num_replicas)]
        dist.all_gather(found, mine, group=self._group)
        return [row.tolist() for row in found]

    def exchange(self, moves: Sequence[Move], parcels: Sequence[Group]) -> list[Group]:
        """See :class:`Peers`; one parcel after the other, pickled."""
        waiting = iter(parcels)
        received = []
        for move in moves:
            if move.source == self._replica.rank:
                parcel = next(waiting)
                dist.send_object_list([parcel], dst=move.target, group=self._group)
            elif move.target == self._replica.rank:
                box: list[Group | None] = [None]
                dist.recv_object_list(box, src=move.source, group=self._group)
                assert box[0] is not None
                received.append(box[0])
        return received


def level(held: Sequence[int], movable: Sequence[int], room: Sequence[int]) -> list[Move]:
    """Moves after which all replicas hold the same number of samples, as far as room allows.

    Args:
        held: samples of each replica.
        movable: of them, those it can give.
        room: samples that each can take at most.
    """
    base, extra = divmod(sum(held), len(held))
    targets = [base + (rank < extra) for rank in range(len(held))]
    give = [
        max(0, min(have - want, able))
        for have, want, able in zip(held, targets, movable, strict=True)
    ]
    moves = []
    for rank, (have, want, space) in enumerate(zip(held, targets, room, strict=True)):
        missing = max(0, min(want - have, space))
        for giver, spare in enumerate(give):
            number = min(missing, spare)
            if number:
                moves.append(Move(giver, rank, number))
                give[giver] -= number
                missing -= number
    return moves
