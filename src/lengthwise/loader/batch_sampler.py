"""The sampler: planned batches for ``DataLoader(batch_sampler=...)``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler

from lengthwise.core.limits import require_int
from lengthwise.core.planner import Planner
from lengthwise.errors import ConfigError, LengthwiseWarning
from lengthwise.loader import state as states
from lengthwise.loader.dealing import Dealer, Dealing
from lengthwise.loader.distributed import Replica
from lengthwise.loader.options import config_of
from lengthwise.loader.progress import Iteration, Progress
from lengthwise.loader.state import PlanIdentity, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import NoReturn, Unpack

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig
    from lengthwise.loader.options import BatchingOptions

RESTARTS_TO_WARN_AT = 2
"""One restart may follow a look at the first batch."""


class BucketBatchSampler(Sampler[list[int]]):
    """Batches of samples of like length, planned; for ``DataLoader(batch_sampler=...)``.

    Every replica makes the same plan from lengths, settings and epoch, without communication and
    without global generators, and yields its own batches of it: as many as every other replica.

    **Epochs.** When all batches of an epoch have been yielded, the next iteration is the next
    epoch. :meth:`set_epoch` chooses one. A loop that stops early begins the same epoch again, from
    where this iteration began, unless ``set_epoch`` says otherwise: so looking at a first batch,
    on one replica or on all, changes nothing.

    **State.** :meth:`state_dict` is a small plain dict, whatever the data's size; see there for
    what it counts. Loading it is exact at every step: the next iteration yields the rest of that
    epoch, and ``len`` is the length of that rest. With another number of replicas the rest of the
    epoch is dealt anew, so that still every sample is seen once.

    **What trainers look for.** There is no ``batch_size``, since sizes vary: Accelerate would take
    one for the size of every batch and drop all others, Lightning would construct the sampler anew
    from it. ``drop_last`` is there, and ``sampler`` is the sampler itself, so that ``set_epoch``
    arrives where a trainer only calls it on ``loader.batch_sampler.sampler``. See
    :mod:`lengthwise.integrations`.

    Args:
        lengths: tokens of each sample of the data set, shape (N,), in its order; or a list of such
            arrays, one a shard. They may be memory-mapped; see :class:`~lengthwise.Planner`.
        config: every choice in one value; or give its fields as keywords instead.
        rank: this replica; by default as torch.distributed says when an iteration begins, so that
            the sampler may be made before the process group.
        num_replicas: replicas that run one batch each in every step; by default likewise.
        plan_ahead: work out the next epoch's plan in a background thread while this epoch is
            consumed, so that changing epochs takes no time. It holds one more plan in memory.
        num_threads: threads for planning; plans do not depend on it.
        shard_sizes: samples of each shard, for ``shards_per_group``; by default as lengths lie.
        **options: ``max_tokens`` and all other fields of :class:`~lengthwise.BatchLimits` and
            :class:`~lengthwise.BatchingConfig`, which explain them.

    Raises:
        ConfigError: a setting that cannot work.
        BadLengthError: a length is not a whole number of at least 1.
        OversizeError: a sample fits no batch and ``oversize="error"``.
        PlanError: no plan exists for this data and number of replicas.

    Example:
        >>> sampler = BucketBatchSampler([3, 9, 4, 8], max_tokens=18, strategy="sorted")
        >>> sorted(map(sorted, sampler))
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        lengths: npt.ArrayLike,
        *,
        config: BatchingConfig | None = None,
        rank: int | None = None,
        num_replicas: int | None = None,
        plan_ahead: bool = True,
        num_threads: int | None = None,
        shard_sizes: npt.ArrayLike | None = None,
        **options: Unpack[BatchingOptions],
    ) -> None:
        """Group the lengths once; see the class."""
        if isinstance(lengths, Sampler):
            raise ConfigError(
                f"lengths is a {type(lengths).__name__}, not the samples' lengths: if a trainer "
                f"constructs the sampler anew, tell it not to (Lightning: "
                f"Trainer(use_distributed_sampler=False))"
            )
        replica = Replica.of(rank, num_replicas)
        planner = Planner(
            lengths,
            config_of(config, options),
            num_replicas=replica.num_replicas,
            num_threads=num_threads,
            shard_sizes=shard_sizes,
        )
        given = rank is not None or num_replicas is not None
        self._set_up(planner, replica, given=given, plan_ahead=plan_ahead)

    def _set_up(self, planner: Planner, replica: Replica, *, given: bool, plan_ahead: bool) -> None:
        self._given = given
        self._dealer = Dealer(planner, replica, plan_ahead=plan_ahead)
        self._identity = PlanIdentity.of(planner)
        self._progress = Progress()

    @classmethod
    def from_planner(
        cls, planner: Planner, rank: int | None = None, *, plan_ahead: bool = True
    ) -> BucketBatchSampler:
        """A sampler of one of a planner's replicas (by default the one of torch.distributed).

        Shares the planner's memory.
        """
        sampler = cls.__new__(cls)
        replica = Replica.of(rank, planner.num_replicas)
        cls._set_up(sampler, planner, replica, given=True, plan_ahead=plan_ahead)
        return sampler

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        *,
        column: str | None = None,
        length_fn: Callable[[Any], int] | None = None,
        scan: bool = False,
        **options: Any,
    ) -> BucketBatchSampler:
        """A sampler for a data set whose lengths :func:`lengths_of` finds; see there.

        Args:
            dataset: what the loader will index.
            column: the column that holds lengths or tokens.
            length_fn: with ``scan``, the length of a sample.
            scan: allow reading every sample.
            **options: as for the class.
        """
        from lengthwise.loader.from_dataset import lengths_of

        lengths = lengths_of(dataset, column=column, length_fn=length_fn, scan=scan)
        return cls(lengths, **options)

    @property
    def planner(self) -> Planner:
        """The planner behind it; its ``lengths``, ``config`` and plans are there to look at."""
        return self._dealer.planner

    @property
    def config(self) -> BatchingConfig:
        """The config, its boundaries found."""
        return self.planner.config

    @property
    def drop_last(self) -> bool:
        """The config's ``drop_last``; trainers look for it."""
        return self.config.drop_last

    @property
    def sampler(self) -> BucketBatchSampler:
        """The sampler itself; trainers look here for ``set_epoch``."""
        return self

    @property
    def batch_size(self) -> NoReturn:
        """There is none. Who asks for it on several replicas is about to deal batches again.

        Raises:
            AttributeError: on one replica, so that ``hasattr`` says no.
            ConfigError: on several.
        """
        if self.num_replicas == 1:
            raise AttributeError("batches vary in size, so there is no batch_size")
        raise ConfigError(
            f"batches vary in size, so there is no batch_size, and they are dealt to "
            f"{self.num_replicas:,} replicas already: a trainer that asks would deal them once "
            f"more and lose most. Accelerate: lengthwise.integrations.accelerate.prepare_loader in "
            f"place of accelerator.prepare. Lightning: Trainer(use_distributed_sampler=False)."
        )

    @property
    def num_samples(self) -> int:
        """Samples of the data set, which the loader indexes."""
        return int(self.planner.lengths.size)

    @property
    def rank(self) -> int:
        """This replica."""
        return self._dealer_now().replica.rank

    @property
    def num_replicas(self) -> int:
        """How many replicas there are."""
        return self._dealer_now().replica.num_replicas

    @property
    def epoch(self) -> int:
        """The epoch of the iteration that runs, else of the next one."""
        return self._progress.shown.epoch

    @property
    def num_steps(self) -> int:
        """Batches of this replica in the whole epoch, also those before a resumed position."""
        dealing, _ = self._dealer_now().at(self._progress.shown)
        return dealing.num_before + dealing.num_steps

    @property
    def iteration(self) -> Iteration | None:
        """The latest iteration, until a state or another epoch is set."""
        return self._progress.iteration

    def __len__(self) -> int:
        """Batches that the running iteration yields in all; where none runs, the next one.

        After a state was loaded in the middle of an epoch this is what is left of it; see
        :attr:`num_steps` for the whole. An iteration runs as long as its iterator is in use, so
        that ``len(loader)`` does not change under a loop whose workers are ahead of it.
        """
        running = self._progress.running
        if running is not None:
            return running.num_steps
        dealing, first = self._dealer_now().at(self._progress.upcoming)
        return dealing.num_steps - first

    def _dealer_now(self) -> Dealer:
        """The dealer; follows torch.distributed where no rank was given."""
        if not self._given:
            replica = Replica.current()
            if replica != self._dealer.replica:
                self._dealer = self._dealer.with_replica(replica)
        return self._dealer

    def even_epochs(self, num_epochs: int) -> None:
        """Give the run's first epochs the same number of batches, for trainers that rely on it.

        Sets the config's ``num_batches``, unless it is set; see :meth:`lengthwise.Planner.evened`.
        Call it before anything is iterated or loaded.

        Args:
            num_epochs: how many.

        Raises:
            ConfigError: the sampler has moved from its start.
            PlanError: the config's own ``num_batches`` is too small for one of these epochs.
        """
        planner = self._dealer_now().planner.evened(num_epochs)
        if planner is self.planner:
            return
        if self._progress.iteration is not None or self._progress.upcoming != Position():
            raise ConfigError("epochs can be evened before the first is begun or a state is loaded")
        self._dealer = self._dealer.with_planner(planner)
        self._identity = PlanIdentity.of(planner)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration.

        The epoch that comes next anyway stays as it is, also where a loaded state begins in its
        middle; any other one begins at its first step.

        Args:
            epoch: from 0.

        Raises:
            ConfigError: not a whole number of at least 0.
        """
        self._progress.set_epoch(require_int("epoch", epoch, least=0))

    def __iter__(self) -> Iterator[list[int]]:
        """This replica's batches from the current position to the end of the epoch."""
        begin, dealer = self._progress.upcoming, self._dealer_now()
        dealer.ahead.join()  # a loader may fork its workers next
        dealing, first = dealer.at(begin)
        iteration = Iteration(begin, dealer.replica.num_replicas, dealing.num_steps - first)
        iterator = self._yield(dealer, dealing, first, iteration)
        self._progress.follow(iteration, iterator)
        if self._progress.num_restarts == RESTARTS_TO_WARN_AT:
            warnings.warn(
                f"epoch {begin.epoch} begins for the third time after a loop that stopped early, "
                f"each time with the same batches; call set_epoch(...) before each loop to go on "
                f"to others",
                LengthwiseWarning,
                stacklevel=2,
            )
        return iterator

    @staticmethod
    def _yield(
        dealer: Dealer, dealing: Dealing, first: int, iteration: Iteration
    ) -> Iterator[list[int]]:
        count = 0
        for samples, edges in dealing.chunks(first):
            if not count:
                dealer.ahead.start(iteration.begin.epoch + 1)
            start = 0
            for stop in edges[1:]:
                count += 1
                iteration.num_yielded = count
                yield samples[start:stop]
                start = stop

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Where the run stands, as a small plain dict.

        Args:
            consumed: batches that training has taken from the latest iteration, counted from 0
                where that iteration began. By default all that the sampler has yielded, which is
                right without workers and for torchdata's ``StatefulDataLoader``. A plain
                ``DataLoader`` with workers fetches ahead: count its batches and pass the number
                here, or use :class:`ResumableDataLoader`, which counts.

        Raises:
            ConfigError: more was consumed than has been yielded.
        """
        position = self._progress.position(consumed)
        return states.to_dict(position, self._dealer.replica.num_replicas, self._identity)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where a saved state stands; the next iteration goes on from there.

        Args:
            state_dict: of a sampler (or :class:`ResumableDataLoader`) of the same data and config,
                on any number of replicas.

        Raises:
            PlanMismatchError: a state of other data, another config or version (names everything
                that differs), or one that cannot be dealt to this number of replicas.

        Warns:
            LengthwiseWarning: dealing the rest of an epoch to another number of replicas dropped
                samples, as ``drop_last=True`` asks for.
        """
        position = states.from_dict(state_dict, self._identity)
        dealing, first = self._dealer_now().resume_at(position)
        if dealing.num_dropped:
            warnings.warn(
                f"dealing the rest of epoch {position.epoch} to another number of replicas "
                f"dropped {dealing.num_dropped:,} samples (drop_last=True)",
                LengthwiseWarning,
                stacklevel=2,
            )
        ended = first == dealing.num_steps
        self._progress.move_to(Position(position.epoch + 1) if ended else position)
