"""Lightning: loaders for its ``Trainer`` and for ``Fabric``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError
from lengthwise.integrations.settings import check_accumulation, check_replicas, sampler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lengthwise.loader import ResumableDataLoader

ENDLESS = 1_000_000
"""Epochs of a run that sets no end."""


class LightningLoader:
    """A loader that Lightning iterates, tells the epoch, saves and restores, and leaves as it is.

    It is no ``DataLoader``: those Lightning constructs anew with a sampler of its own.
    ``len`` is the number of batches of a whole epoch, also where the rest of one comes next: the
    trainer counts from the epoch's start.
    """

    def __init__(
        self, loader: ResumableDataLoader[Any], move: Callable[[Any], Any] | None = None
    ) -> None:
        """Iterate ``loader``; ``move`` takes each batch to its device."""
        self.loader = loader
        self._move = move

    @property
    def sampler(self) -> LightningLoader:
        """Where Lightning looks for ``set_epoch``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch, unless training stands in it: workers may have fetched all of it."""
        if self.loader.state_dict()["epoch"] != epoch:
            self.loader.set_epoch(epoch)

    def __len__(self) -> int:
        """Batches of a whole epoch on this replica."""
        return self.loader.batch_sampler.num_steps

    def __iter__(self) -> Iterator[Any]:
        """The batches to the end of the epoch; where they begin is decided with the first one."""
        for batch in self.loader:
            yield batch if self._move is None else self._move(batch)

    def state_dict(self) -> dict[str, Any]:
        """As :meth:`ResumableDataLoader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As :meth:`ResumableDataLoader.load_state_dict`."""
        self.loader.load_state_dict(state_dict)


def lightning_loader(trainer: Any, loader: ResumableDataLoader[Any]) -> LightningLoader:
    """What ``train_dataloader`` should return; works with ``use_distributed_sampler`` on or off.

    Call it inside ``train_dataloader``, where ``self.trainer`` has its processes. Epochs get the
    same number of batches (:meth:`BucketBatchSampler.even_epochs`), since the trainer takes the
    first one's for all. Checkpoints hold the loader's state, in the middle of an epoch too.

    Args:
        trainer: the ``lightning.Trainer``.
        loader: over a sampler whose ``accumulation_steps`` are the trainer's
            ``accumulate_grad_batches``.

    Raises:
        ConfigError: settings that contradict each other, or a loader made too early.
    """
    sampler = sampler_of(loader)
    check_accumulation(sampler, trainer.accumulate_grad_batches, "accumulate_grad_batches")
    where = trainer.distributed_sampler_kwargs or {"rank": 0, "num_replicas": 1}
    check_replicas(sampler, where["rank"], where["num_replicas"], "Lightning")
    if trainer.overfit_batches:
        raise ConfigError(
            "overfit_batches means the same few batches in every epoch: use strategy='sorted' and "
            "Trainer(limit_train_batches=...) for that"
        )
    sampler.even_epochs(_num_epochs(trainer, len(sampler)))
    return LightningLoader(loader)


def _num_epochs(trainer: Any, num_steps: int) -> int:
    by_epochs, by_steps = trainer.max_epochs, trainer.max_steps * trainer.accumulate_grad_batches
    ends = [by_epochs] if by_epochs is not None and by_epochs > 0 else []
    ends += [math.ceil(by_steps / num_steps)] if by_steps > 0 else []
    return max(1, min(ends, default=ENDLESS))


def fabric_loader(fabric: Any, loader: ResumableDataLoader[Any]) -> LightningLoader:
    """The place of ``fabric.setup_dataloaders``: moves batches to the device, changes no epoch.

    Fabric's own wrapper counts epochs from 0 in every new process and hides the state; this one is
    saved and restored with ``fabric.save(path, {"loader": loader, ...})`` and ``fabric.load``.

    Args:
        fabric: launched.
        loader: over a sampler that deals to Fabric's processes.

    Raises:
        ConfigError: the sampler deals to other replicas.
    """
    where = getattr(fabric.strategy, "distributed_sampler_kwargs", None)
    where = where or {"rank": 0, "num_replicas": 1}
    check_replicas(sampler_of(loader), where["rank"], where["num_replicas"], "Fabric")
    return LightningLoader(loader, fabric.to_device)
