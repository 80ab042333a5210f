"""A DataLoader whose state counts the batches that training took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import DataLoader

from lengthwise.errors import ConfigError
from lengthwise.loader.batch_sampler import BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.utils.data import Dataset

    from lengthwise.loader.progress import Iteration

Sample = TypeVar("Sample", covariant=True)  # noqa: PLC0105 - as torch's DataLoader has it


def check_pair(dataset: Any, batch_sampler: Any, options: Mapping[str, Any]) -> None:
    """Refuse a loader whose batches could not be told from a sampler's place.

    Raises:
        ConfigError: see :class:`ResumableDataLoader`.
    """
    if not isinstance(batch_sampler, BucketBatchSampler):
        raise ConfigError(
            f"batch_sampler must be a BucketBatchSampler, got {type(batch_sampler).__name__}"
        )
    num_samples = len(dataset) if hasattr(dataset, "__len__") else None
    if num_samples is not None and num_samples != batch_sampler.num_samples:
        raise ConfigError(
            f"the data set has {num_samples:,} samples, the sampler was made from "
            f"{batch_sampler.num_samples:,} lengths; take the lengths of the very object that "
            f"the loader indexes"
        )
    if not options.get("in_order", True):
        raise ConfigError(
            "in_order=False hands batches out in an order that no state can describe; leave it out"
        )


class _Handed:
    """Batches that one pass over the loader has handed out."""

    __slots__ = ("count", "iteration")

    def __init__(self, iteration: Iteration | None) -> None:
        self.iteration = iteration
        self.count = 0


class ResumableDataLoader(DataLoader[Sample]):
    """A ``DataLoader`` that saves and restores its place, workers fetching ahead or not.

    Its state is that of its sampler at the batches that were handed out, not at those that workers
    have fetched meanwhile; sampler and loader can load each other's states. It says which samples
    come next, and nothing about random numbers that the data set draws.

    Args:
        dataset: a map-style data set.
        batch_sampler: whose lengths are those of ``dataset``.
        **options: as for ``DataLoader``, apart from ``batch_size``, ``shuffle``, ``sampler`` and
            ``drop_last``, which the sampler decides.

    Raises:
        ConfigError: the sampler is of another kind or another data set's size, or an option would
            make batches arrive out of order.
    """

    batch_sampler: BucketBatchSampler

    def __init__(
        self, dataset: Dataset[Sample], batch_sampler: BucketBatchSampler, **options: Any
    ) -> None:
        """Check that sampler and data set belong together."""
        check_pair(dataset, batch_sampler, options)
        super().__init__(dataset, batch_sampler=batch_sampler, **options)
        self._handed = _Handed(None)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch's own iterator, counted
        """The batches from the current position to the end of the epoch."""
        batches = super().__iter__()
        self._handed = _Handed(self.batch_sampler.iteration)
        return self._count(batches, self._handed)

    def _count(self, batches: Iterator[Any], handed: _Handed) -> Iterator[Any]:
        for batch in batches:
            handed.count += 1
            yield batch
        if handed.iteration is not None and self.batch_sampler.iteration is handed.iteration:
            # All is consumed, so that the next epoch begins for whoever asks for len or state.
            self.batch_sampler.set_epoch(handed.iteration.begin.epoch + 1)

    def __len__(self) -> int:
        """Batches of the running pass, else of the next; see :class:`BucketBatchSampler`."""
        return len(self.batch_sampler)

    def set_epoch(self, epoch: int) -> None:
        """As :meth:`BucketBatchSampler.set_epoch`."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where training stands, counted by the batches it was handed."""
        handed, iteration = self._handed, self.batch_sampler.iteration
        if iteration is None:
            return self.batch_sampler.state_dict()
        return self.batch_sampler.state_dict(handed.count if handed.iteration is iteration else 0)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where a saved state stands; as :meth:`BucketBatchSampler.load_state_dict`."""
        self.batch_sampler.load_state_dict(state_dict)
