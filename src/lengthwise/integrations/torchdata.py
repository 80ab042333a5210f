"""torchdata's ``StatefulDataLoader``, which saves the sampler's state with its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import MissingDependencyError

if TYPE_CHECKING:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from lengthwise.loader import BucketBatchSampler


def stateful_loader(
    dataset: Any, sampler: BucketBatchSampler, **options: Any
) -> StatefulDataLoader[Any]:
    """A ``StatefulDataLoader`` that resumes exactly, in every epoch and at its end.

    It also saves what the data set and its workers keep as state. Where there is no such state,
    :class:`~lengthwise.loader.ResumableDataLoader` does the same with a state of a few numbers,
    which may be loaded with another number of workers or replicas.

    Args:
        dataset: map-style.
        sampler: made from the lengths of ``dataset``.
        **options: as for ``StatefulDataLoader``, apart from ``batch_size``, ``shuffle``,
            ``sampler`` and ``drop_last``, which the sampler decides.

    Raises:
        ConfigError: sampler and data set do not belong together, or batches would be out of order.
        MissingDependencyError: torchdata is not installed.
    """
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError as error:
        raise MissingDependencyError(
            "StatefulDataLoader comes with torchdata: pip install torchdata"
        ) from error
    from lengthwise.loader.data_loader import check_pair

    check_pair(dataset, sampler, options)
    return StatefulDataLoader(dataset, batch_sampler=sampler, **options)
