"""Plain PyTorch, one process a replica: DistributedDataParallel, FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.loader import BucketBatchSampler, ResumableDataLoader


def ddp_loader(
    dataset: Any, sampler: BucketBatchSampler, **options: Any
) -> ResumableDataLoader[Any]:
    """The loader of this process's share of a data set.

    Call it after ``init_process_group``. Every process makes the same plan, so nothing is sent
    between them; all get as many batches. Save ``loader.state_dict()`` with a checkpoint, on one
    process: it is the same on all, and may be loaded on another number of them.

    Args:
        dataset: map-style; the same in every process.
        sampler: made from the lengths of ``dataset``. Its rank and number of replicas are those of
            torch.distributed unless given, as where only some dimensions of a device mesh see
            different data.
        **options: as for ``DataLoader``.

    Raises:
        ConfigError: there is no process group, or the replicas do not fit the processes.
    """
    import torch.distributed as dist

    from lengthwise.loader import ResumableDataLoader
    from lengthwise.loader.distributed import Replica

    if not (dist.is_available() and dist.is_initialized()):
        raise ConfigError(
            "torch.distributed is not initialised, so every process would train on all samples. "
            "Call init_process_group first; a single process can use ResumableDataLoader as it is."
        )
    world, replicas = Replica.current().num_replicas, sampler.num_replicas
    if world % replicas:
        raise ConfigError(
            f"the sampler deals to {replicas:,} replicas, which {world:,} processes cannot be: "
            f"leave its rank and num_replicas out, or give those of the data-parallel dimension"
        )
    return ResumableDataLoader(dataset, sampler, **options)
