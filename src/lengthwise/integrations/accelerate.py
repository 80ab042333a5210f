"""Hugging Face Accelerate: a prepared loader whose batches are not dealt a second time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError
from lengthwise.integrations.settings import check_accumulation, sampler_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lengthwise.loader import ResumableDataLoader


def prepare_loader(
    accelerator: Any, loader: ResumableDataLoader[Any], *, num_epochs: int | None = None
) -> Any:
    """The place of ``accelerator.prepare(loader)``: batches on the device, and nothing dealt again.

    What comes back is an Accelerate loader in every other way: ``accumulate`` takes a step at the
    epoch's end, ``set_epoch`` and ``skip_first_batches`` work. ``save_state`` saves its place and
    ``load_state`` goes there: iterate it then, without ``skip_first_batches``.

    Args:
        accelerator: the ``Accelerator``.
        loader: over a sampler whose ``accumulation_steps`` are the accelerator's
            ``gradient_accumulation_steps``.
        num_epochs: epochs of the run, which then all get the same number of batches, for scripts
            that work out an epoch and a place in it from ``len(loader)``.

    Raises:
        ConfigError: a setting of Accelerate that would take batches apart or repeat samples.
    """
    sampler = sampler_of(loader)
    for setting in ("split_batches", "dispatch_batches"):
        if getattr(accelerator, setting, None):
            raise ConfigError(
                f"{setting}=True takes batches apart, which are made for one replica each: leave "
                f"it out of Accelerate's DataLoaderConfiguration"
            )
    check_accumulation(
        sampler, accelerator.gradient_accumulation_steps, "gradient_accumulation_steps"
    )
    if accelerator.num_processes % sampler.num_replicas or (
        sampler.num_replicas == 1 < accelerator.num_processes
    ):
        raise ConfigError(
            f"the sampler deals to {sampler.num_replicas} replicas, Accelerate has "
            f"{accelerator.num_processes} processes: make the Accelerator first, or give the "
            f"sampler rank= and num_replicas= of the processes that see different data"
        )
    if num_epochs is not None:
        sampler.even_epochs(num_epochs)
    prepared = _shard_class()(accelerator, loader)
    accelerator.register_for_checkpointing(prepared)
    return prepared


@cache
def _shard_class() -> Any:
    from accelerate.data_loader import DataLoaderShard

    class LengthwiseShard(DataLoaderShard):  # type: ignore[misc]  # Accelerate is not typed
        """Accelerate's own loader around ours, which knows the epoch and the place in it.

        Accelerate fetches a batch ahead, and asks for the state (``dl_state_dict``) before it does.
        A state that was loaded waits until this loader is iterated: ``skip_first_batches`` makes
        another loader, which must find the epoch at its first step.
        """

        def __init__(self, accelerator: Any, loader: ResumableDataLoader[Any]) -> None:
            random_numbers = [kind for kind in accelerator.rng_types or () if kind != "generator"]
            super().__init__(
                loader.dataset,
                device=accelerator.device if accelerator.device_placement else None,
                rng_types=random_numbers or None,
                batch_sampler=loader.batch_sampler,
                _non_blocking=accelerator.non_blocking,
            )
            self.base_dataloader: Any = loader
            self.iteration = loader.batch_sampler.epoch
            self._waiting: dict[str, Any] | None = None
            self._own_pass: object = None

        def _pending(self) -> dict[str, Any] | None:
            sampler, state = self.base_dataloader.batch_sampler, self._waiting
            stands = sampler.iteration is None and state and sampler.epoch == state["epoch"]
            return state if stands else None

        def __len__(self) -> int:
            return int(self.base_dataloader.batch_sampler.num_steps)

        def __iter__(self) -> Iterator[Any]:
            state, self._waiting = self._pending(), None
            if state is not None:
                self.base_dataloader.load_state_dict(state)
            self.iteration = self.base_dataloader.batch_sampler.epoch
            yield from super().__iter__()

        def _update_state_dict(self) -> None:
            super()._update_state_dict()
            self._own_pass = self.base_dataloader.batch_sampler.iteration

        def adjust_state_dict_for_prefetch(self) -> None:
            """Nothing to adjust; Accelerate before 1.10 would look for torchdata's counters."""

        def state_dict(self) -> dict[str, Any]:
            state, sampler = self._pending(), self.base_dataloader.batch_sampler
            if state is not None:
                return state
            if sampler.iteration is None:
                return dict(self.base_dataloader.state_dict())
            if sampler.iteration is self._own_pass:
                state = dict(self.dl_state_dict)
                state.pop("_iterator_finished", None)  # Accelerate's own
                return state
            in_use = self.gradient_state.dataloader_references
            samplers = [getattr(loader, "batch_sampler", None) for loader in in_use]
            if any(getattr(skipping, "batch_sampler", None) is sampler for skipping in samplers):
                raise ConfigError(
                    "the place in an epoch begun with skip_first_batches is not known, since "
                    "Accelerate fetches ahead of training: save at the epoch's end, or resume with "
                    "load_state alone, which goes to the place that was saved"
                )
            return dict(sampler.state_dict())

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            sampler = self.base_dataloader.batch_sampler
            sampler.load_state_dict(state_dict)
            self._waiting = sampler.state_dict()
            self.iteration = self._waiting["epoch"]
            for epoch in (self.iteration + 1, self.iteration):  # there and back: to its first step
                sampler.set_epoch(epoch)

    return LengthwiseShard
