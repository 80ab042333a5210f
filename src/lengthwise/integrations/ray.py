"""Ray: planned batches in the workers of Ray Train, and batches by length from Ray Data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from lengthwise.errors import ConfigError, MissingDependencyError, PlanMismatchError
from lengthwise.integrations.settings import check_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lengthwise.loader import (
        BucketBatchSampler,
        ResumableDataLoader,
        StreamingBucketBatcher,
    )


def ray_loader(
    dataset: Any, sampler: BucketBatchSampler, **options: Any
) -> ResumableDataLoader[Any]:
    """The loader of this Ray Train worker's share of a data set.

    Call it in ``train_loop_per_worker``. Every worker makes the same plan, so nothing is sent
    between them; all get as many batches. Put ``loader.state_dict()`` into the checkpoint that one
    worker reports: it is the same on all, and may be loaded by another number of them, as after an
    elastic restart.

    Args:
        dataset: map-style; the same in every worker.
        sampler: made from the lengths of ``dataset``. Without a rank it takes that of
            torch.distributed, which ``TorchTrainer`` starts, or else that of Ray Train; the
            loader's ``batch_sampler`` is then another one over the same plan.
        **options: as for ``DataLoader``.

    Raises:
        ConfigError: this is no worker of Ray Train, or the replicas do not fit the workers.
        MissingDependencyError: Ray is not installed.
    """
    import torch.distributed as dist

    from lengthwise.integrations.ddp import ddp_loader
    from lengthwise.loader import BucketBatchSampler, ResumableDataLoader

    rank, num_workers = _worker()
    if dist.is_available() and dist.is_initialized():
        return ddp_loader(dataset, sampler, **options)
    if sampler.num_replicas == 1:
        planner = sampler.planner.with_replicas(num_workers)
        sampler = BucketBatchSampler.from_planner(planner, rank)
    check_replicas(sampler, rank, num_workers, "Ray Train")
    return ResumableDataLoader(dataset, sampler, **options)


def ray_stream(
    rows: Any,
    length: str | Callable[[Any], int],
    *,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    **options: Any,
) -> StreamingBucketBatcher:
    """Batches of rows of like length from Ray Data, under a budget of tokens.

    In the place of ``iter_batches``, whose batches have a fixed number of rows. Each pass over it
    reads the rows once, and keeps ``buffer_samples`` of them to choose from. In the workers of
    Ray Train every worker gives its own shard, and all get equally many batches.

    Ray Data hands out rows in another order in every run, so a state is exact between epochs; one
    from the middle of an epoch is refused. Where that is needed, see :func:`ray_loader`.

    Args:
        rows: a ``ray.data.Dataset``, or what ``ray.train.get_dataset_shard`` gives.
        length: the column that holds tokens or their number, or a function of a row.
        collate_fn: a batch of a list of rows; by default batches are such lists.
        **options: as for :class:`~lengthwise.loader.StreamingBucketBatcher`: ``max_tokens`` ...

    Raises:
        ConfigError: rows of another kind, or a setting that cannot work.

    Example:
        >>> for batch in ray_stream(dataset, "input_ids", max_tokens=16_384):  # doctest: +SKIP
        ...     step(batch)
    """
    from lengthwise.loader import StreamingBucketBatcher

    if not hasattr(rows, "iter_rows"):
        raise ConfigError(
            f"rows must be a ray.data.Dataset or a shard of one (ray.train.get_dataset_shard), got "
            f"{type(rows).__name__}"
        )
    options.setdefault("sharding", "sharded" if _is_shard(rows) else "replicated")
    return StreamingBucketBatcher(_Rows(rows), length, collate_fn=collate_fn, **options)


def every_row() -> Any:
    """A ``ray.train.DataConfig`` whose shards hold every row together: for ``ray_stream``.

    Ray Train's own makes shards of equal size, and drops the rows that do not divide by the
    workers. Here shards may differ; ``ray_stream`` gives workers equally many batches all the same.

    Raises:
        MissingDependencyError: Ray is not installed.
    """
    _require_train()
    from ray.train import DataConfig

    class EveryRow(DataConfig):
        """Splits every data set among the workers, whatever is left over."""

        def configure(
            self, datasets: Mapping[str, Any], world_size: int, *_workers: Any, **_more: Any
        ) -> list[dict[str, Any]]:
            shards = {
                name: dataset.streaming_split(world_size, equal=False)
                for name, dataset in datasets.items()
            }
            return [{name: shards[name][worker] for name in shards} for worker in range(world_size)]

    return EveryRow()


class _Rows:
    """The rows of Ray Data as a stream that knows it cannot go on from its middle."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows.iter_rows())

    def state_dict(self) -> dict[str, Any]:
        return {"rows": "in the order of that run"}

    def load_state_dict(self, _state: Mapping[str, Any]) -> Never:
        raise PlanMismatchError(
            "the state is from the middle of an epoch, and Ray Data hands out rows in another "
            "order in every run: save the state after the last batch of an epoch, or call "
            "set_epoch(...) in place of loading it to begin an epoch anew. ray_loader resumes at "
            "any batch"
        )


def _is_shard(rows: Any) -> bool:
    """Whether rows are one worker's part: of several splits, each of which is an iterator."""
    return not hasattr(rows, "iterator") and getattr(rows, "world_size", lambda: 1)() > 1


def _worker() -> tuple[int, int]:
    """Rank and number of the workers.

    Raises:
        ConfigError: this process is none of them.
    """
    _require_train()
    from ray.train import get_context

    try:
        context = get_context()
        return context.get_world_rank(), context.get_world_size()
    except (RuntimeError, AttributeError) as error:
        raise ConfigError(
            "this process is no worker of Ray Train: call ray_loader in the function that "
            "TorchTrainer runs (train_loop_per_worker); a single process can use "
            "ResumableDataLoader as it is"
        ) from error


def _require_train() -> None:
    try:
        import ray.train  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "Ray Train and Ray Data come with Ray: pip install 'lengthwise[ray]'"
        ) from None
