"""Where a step's samples come from: the target runs batches until all of them are there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lengthwise.dflash.target.samples import samples_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.batch import Sample
    from lengthwise.dflash.dataset import PreparedDataset
    from lengthwise.dflash.target.model import Target
    from lengthwise.dflash.training.plan import Epoch


class SampleSource(Protocol):
    """Hands out the samples of one step after the other."""

    def begin(self, epoch: Epoch, num_done: int) -> None:
        """Turn to an epoch of which ``num_done`` steps are done."""

    def take(self, step: int) -> list[Sample] | None:
        """This process's samples of step ``step``; steps are asked for in order.

        None: the run is to end before this step, with its state saved.
        """


class TargetRunner:
    """Turns batches of a data set into samples with features.

    Args:
        target: the frozen model.
        dataset: the prepared samples.
        layer_ids: the taps.
        home: where features wait; None for the target's own device.
    """

    def __init__(
        self,
        target: Target,
        dataset: PreparedDataset,
        layer_ids: Sequence[int],
        home: torch.device | None = None,
    ) -> None:
        """Nothing runs yet."""
        self._target = target
        self._dataset = dataset
        self._layer_ids = tuple(layer_ids)
        self._home = home

    def run(self, sample_ids: Int64Array) -> list[Sample]:
        """One padded batch through the target; padding is stripped."""
        rows = [self._dataset[int(sample)] for sample in sample_ids]
        samples = samples_of(
            self._target,
            [row["input_ids"] for row in rows],
            [row["loss_mask"] for row in rows],
            [int(sample) for sample in sample_ids],
            self._layer_ids,
        )
        return samples if self._home is None else [_moved(s, self._home) for s in samples]


def _moved(sample: Sample, device: torch.device) -> Sample:
    return replace(sample, features=sample.features.to(device))


class LocalSource:
    """Runs the target in this process, just before its samples are needed.

    Args:
        runner: the target and the data.
    """

    def __init__(self, runner: TargetRunner) -> None:
        """Nothing waits."""
        self._runner = runner
        self._epoch: Epoch | None = None
        self._arrived = 0
        self._pool: dict[int, Sample] = {}

    def begin(self, epoch: Epoch, num_done: int) -> None:
        """Turn to an epoch; after a resumption, run again what waited.

        Whole batches are run again even where few of their samples waited: a batch of other rows
        could differ in the last bit, and a resumed run is to be the same.
        """
        self._epoch, self._pool = epoch, {}
        self._arrived = epoch.arrivals_by(num_done - 1) if num_done else 0
        wanted = set(epoch.waiting(num_done).tolist())
        for index in range(self._arrived):
            if wanted.intersection(epoch.arrival(index).tolist()):
                self._enter(index, wanted)

    def take(self, step: int) -> list[Sample]:
        """The samples of a step, which leave the pool."""
        assert self._epoch is not None, "begin comes first"
        needed = self._epoch.arrivals_by(step)
        while self._arrived < needed:
            self._enter(self._arrived, None)
            self._arrived += 1
        return [self._pool.pop(sample) for sample in self._epoch.step(step).tolist()]

    def _enter(self, index: int, wanted: set[int] | None) -> None:
        assert self._epoch is not None
        for sample in self._runner.run(self._epoch.arrival(index)):
            if wanted is None or sample.sample_id in wanted:
                self._pool[sample.sample_id] = sample
