"""Batches of like length from a stream whose lengths are known only as samples pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError
from lengthwise.loader.distributed import Replica
from lengthwise.loader.streaming.config import config_of
from lengthwise.loader.streaming.intake import Intake
from lengthwise.loader.streaming.peers import TorchPeers
from lengthwise.loader.streaming.source import Source
from lengthwise.loader.streaming.state import check_state, to_dict
from lengthwise.loader.streaming.stats import StreamStats
from lengthwise.loader.streaming.stream_pass import StreamPass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import NoReturn, Unpack

    from lengthwise.loader.streaming.config import StreamingConfig, StreamingOptions
    from lengthwise.loader.streaming.peers import Peers


class StreamingBucketBatcher(IterableDataset[Any]):
    """Batches of samples of like length from a stream, through a bounded buffer.

    Iterate it, or give it to ``DataLoader(batcher, batch_size=None, collate_fn=...)``. No batch
    exceeds the limits; every sample of the stream is yielded once. What a pass yields depends on
    the stream, the settings, the replica and the epoch alone, never on global generators.

    **Epochs.** One iteration is one pass over the source. When its last batch has been yielded, the
    next iteration is the next epoch (the source's ``set_epoch`` is called, or a source function
    gets ``epoch=``). A loop that stops early begins the same epoch again, from where its iteration
    began, unless :meth:`set_epoch` says otherwise.

    **State.** :meth:`state_dict` holds what the buffer holds and where the source stands, so its
    size is that of the buffer; loading it is exact after any batch. With ``num_workers=1`` the
    iteration runs in the worker: use torchdata's ``StatefulDataLoader``, which asks there.

    **Replicas** get equally many batches; see ``sharding`` in :class:`StreamingConfig`.

    **Workers.** None or one. To read and tokenise in many processes, put them below: make
    ``DataLoader(stream, batch_size=None, num_workers=8)`` the source.

    There is no ``len``: nobody knows how many batches a stream makes. Give the trainer a number of
    steps.

    Args:
        source: an iterable that can be iterated once per epoch (``IterableDataset``, a list, a
            ``DataLoader``), or a function that returns one.
        length: the field of a sample that holds its tokens or their number, or a function from a
            sample to that number.
        config: every choice in one value; or give its fields as keywords instead.
        collate_fn: applied to each batch; by default batches are lists of samples.
        truncate_fn: for ``oversize="truncate"``: ``truncate_fn(sample, num_tokens)`` returns the
            sample cut to that length.
        rank: this replica; by default as torch.distributed says when an iteration begins.
        num_replicas: replicas that take one batch each in every step; by default likewise.
        sync_timeout_seconds: ``strided`` and ``sharded``: how long to wait for another replica.
        **options: ``max_tokens`` and all other fields of :class:`~lengthwise.BatchLimits` and
            :class:`StreamingConfig`, which explain them.

    Raises:
        ConfigError: a setting that cannot work, or a source that can be read only once.

    Example:
        >>> batcher = StreamingBucketBatcher(["a", "bbb", "cc"], len, max_tokens=4)
        >>> sorted(map(sorted, batcher))
        [['a', 'cc'], ['bbb']]
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[..., Iterable[Any]],
        length: str | Callable[[Any], int],
        *,
        config: StreamingConfig | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        truncate_fn: Callable[[Any, int], Any] | None = None,
        rank: int | None = None,
        num_replicas: int | None = None,
        sync_timeout_seconds: float = 1800.0,
        **options: Unpack[StreamingOptions],
    ) -> None:
        """Check everything that can be checked before the stream is read; see the class."""
        self.config = config_of(config, options)
        self._source = Source(source)
        self._intake = Intake(length, self.config, truncate_fn)
        self._collate = collate_fn
        self._given = rank is not None or num_replicas is not None
        self._replica = Replica.of(rank, num_replicas)
        self.config.check_buffer(self._replica.num_replicas)
        self._timeout = sync_timeout_seconds
        self._peers: Peers | None = None
        self._pass: StreamPass | None = None
        self._begin: tuple[int, Mapping[str, Any]] | None = None
        self._cells = _shared([0, 0])

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration; while one runs, of that, until its last batch."""
        return int(self._cells[0])

    @property
    def stats(self) -> StreamStats:
        """Exact totals of the latest pass in this process."""
        return StreamStats() if self._pass is None else self._pass.stats

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """Boundaries given, or learned in the latest pass; ``None`` where there are none."""
        if self._pass is not None and self._pass.learned.boundaries is not None:
            return self._pass.learned.boundaries
        return self.config.boundaries

    def __len__(self) -> NoReturn:
        """There is none.

        Raises:
            TypeError: always; with the way out.
        """
        raise TypeError(
            "StreamingBucketBatcher has no length: how many batches a stream makes is known only "
            "at its end. Give the trainer a number of steps (max_steps=..., or itertools.islice), "
            "or use BucketBatchSampler where the lengths are known."
        )

    def __bool__(self) -> bool:
        """True, although there is no length."""
        return True

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration.

        The epoch that comes next anyway stays as it is, also where a loaded state begins in its
        middle; any other one begins at its start.

        Args:
            epoch: from 0.
        """
        epoch = require_int("epoch", epoch, least=0)
        self._cells[1] = 0
        if epoch != self.epoch:
            self._cells[0] = epoch
            self._begin = self._pass = None

    def __iter__(self) -> Iterator[Any]:
        """This replica's batches, from the current position to the end of the epoch."""
        in_worker = _check_worker(self.config.sharding, self._replica_now())
        current = self._new_pass()
        self._pass = current
        return self._run(current, in_worker=in_worker)

    def _run(self, current: StreamPass, *, in_worker: bool) -> Iterator[Any]:
        if in_worker:
            self._cells[1] = 1
        if self._begin is not None and self._begin[0] == current.epoch:
            current.restore(self._begin[1])
        current.begin()
        while not current.finished:
            samples = current.take()
            self._note_end(current)
            yield samples if self._collate is None else self._collate(samples)

    def _note_end(self, current: StreamPass) -> None:
        """After the last batch the next epoch comes, unless ``set_epoch`` said otherwise."""
        if current.finished and self.epoch == current.epoch:
            self._cells[0] = current.epoch + 1
            self._begin = None

    def _new_pass(self) -> StreamPass:
        epoch, sharding = self.epoch, self.config.sharding
        replica = self._replica_now()
        self.config.check_buffer(replica.num_replicas)
        if self._source.is_split and replica.num_replicas > 1 and sharding != "sharded":
            raise ConfigError(
                f"the source is one part of a data set that split_dataset_by_node has divided, and "
                f"sharding={sharding!r} needs all of it on every replica: use sharding='sharded', "
                f"or the data set as it was before"
            )
        return StreamPass(
            self.config,
            replica,
            epoch,
            source=self._source,
            intake=self._intake,
            peers=self._peers_of(replica),
        )

    def _peers_of(self, replica: Replica) -> Peers | None:
        """The other replicas, where they must be asked."""
        if self.config.sharding == "replicated" or replica.num_replicas == 1:
            return None
        if self._peers is None:
            self._peers = TorchPeers(replica, self._timeout)
        return self._peers

    def _replica_now(self) -> Replica:
        """This replica; follows torch.distributed, once that is there, where none was given."""
        if not self._given:
            found = Replica.current()
            if found.num_replicas > 1:
                self._replica = found
        return self._replica

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands after the last batch yielded, with what the buffer holds.

        Raises:
            ConfigError: the iteration runs in a DataLoader's worker, ahead of the training loop.
        """
        if self._cells[1] and get_worker_info() is None:
            raise ConfigError(
                "the iteration ran in a DataLoader's worker, which is ahead of the training loop: "
                "use torchdata's StatefulDataLoader(batcher, batch_size=None, num_workers=1) and "
                "its state_dict, or num_workers=0"
            )
        current, replica = self._pass, self._replica_now()
        rest: Mapping[str, Any] | None = None
        if current is not None and current.begun and current.epoch == self.epoch:
            rest = current.state()
        elif self._begin is not None and self._begin[0] == self.epoch:
            rest = self._begin[1]
        return to_dict(self.epoch, rest, self.config, replica)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where a saved state stands; the next iteration goes on from there.

        Args:
            state_dict: of a batcher with the same settings over the same stream. With
                ``sharding="replicated"`` of any replica, and of any number of replicas; else of
                this one.

        Raises:
            PlanMismatchError: a state of another kind, version, replica or other settings; names
                everything that differs.
        """
        check_state(state_dict, self.config, self._replica_now())
        self._pass = None
        self._cells[0], self._cells[1] = state_dict["epoch"], 0
        rest = state_dict["rest"]
        self._begin = None if rest is None else (state_dict["epoch"], rest)

    def __getstate__(self) -> dict[str, Any]:
        """For a worker started anew: without a running iteration, which stays here."""
        self._replica_now()
        return {**self.__dict__, "_pass": None, "_peers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As pickled; the epoch's cell is shared again where pickling made a copy of it."""
        self.__dict__.update(state)
        _share(self._cells)


def _shared(values: list[int]) -> torch.Tensor:
    """A tensor that a DataLoader's worker writes and the main process reads.

    The first cell is the epoch of the next iteration, the second 1 where one ran in a worker.
    """
    return _share(torch.tensor(values, dtype=torch.int64))


def _share(cells: torch.Tensor) -> torch.Tensor:
    cells.share_memory_()  # type: ignore[no-untyped-call]
    return cells


def _check_worker(sharding: str, replica: Replica) -> bool:
    """Whether this is a DataLoader's worker; refuse where that would lose or repeat samples."""
    worker = get_worker_info()
    if worker is None:
        return False
    if worker.num_workers > 1:
        raise ConfigError(
            f"num_workers={worker.num_workers}: each worker would read the whole stream into a "
            f"buffer of its own, and yield every sample again. Use num_workers=1 or 0, and many "
            f"workers below: StreamingBucketBatcher(DataLoader(stream, batch_size=None, "
            f"num_workers={worker.num_workers}), ...)"
        )
    if sharding != "replicated" and replica.num_replicas > 1:
        raise ConfigError(
            f"sharding={sharding!r} asks the other replicas, which a DataLoader's worker cannot: "
            f"use num_workers=0, or sharding='replicated'"
        )
    return True
