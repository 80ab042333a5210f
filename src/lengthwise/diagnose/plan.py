"""The plan of a run, made again from its config: what was in each step, and what else there was.

A plan is a value of data, config and epoch, so nothing need have been written down.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lengthwise.core.planner import Planner
from lengthwise.dflash.training.run_files import CONFIG_FILE
from lengthwise.errors import LengthwiseError, MissingDependencyError

if TYPE_CHECKING:
    from pathlib import Path

    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.plan import TrainingPlan

MOST_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A sample and where it stands.

    Attributes:
        sample_id: its number in the data set.
        num_tokens: of it.
        file: that holds it.
        row: in the file, from 0.
    """

    sample_id: int
    num_tokens: int
    file: str
    row: int


@dataclass(frozen=True, slots=True)
class StepContents:
    """What an optimiser step learnt from.

    Attributes:
        epoch: counted from 0.
        step: number in the epoch, from 0.
        num_samples: all of them.
        num_tokens: of these.
        shortest: tokens of the shortest.
        longest: of the longest.
        batches: numbers in the epoch of the target's batches that its samples came from.
        samples: ten of them, those of the wanted length class first, then the longest.
    """

    epoch: int
    step: int
    num_samples: int
    num_tokens: int
    shortest: int
    longest: int
    batches: tuple[int, ...]
    samples: tuple[SampleRow, ...]


class RunPlan:
    """A run's plan.

    Args:
        config: of the run.
        plan: its epochs.
    """

    def __init__(self, config: TrainConfig, plan: TrainingPlan) -> None:
        """Take a plan; nothing is planned yet."""
        self.config = config
        self.plan = plan

    def contents(self, num_steps: int, length_class: int | None = None) -> StepContents:
        """What was in the step after which ``num_steps`` were done.

        Args:
            num_steps: from 1, as records count.
            length_class: whose samples are shown first, as losses are told apart; None: none.
        """
        number, step = divmod(num_steps - 1, self.plan.steps_per_epoch)
        epoch = self.plan.epoch(number)
        sample_ids = epoch.step(step)
        dataset = self.plan.data.dataset
        lengths = dataset.lengths[sample_ids]
        return StepContents(
            epoch=number,
            step=step,
            num_samples=int(sample_ids.size),
            num_tokens=int(lengths.sum()),
            shortest=int(lengths.min()),
            longest=int(lengths.max()),
            batches=self._batches_of(number, step, sample_ids),
            samples=tuple(self._row(sample) for sample in self._first(sample_ids, length_class)),
        )

    @cached_property
    def default_efficiency(self) -> float:
        """The same with the default strategy under the same limits."""
        section = self.config.batching
        limits = ("max_tokens", "max_batch_size", "pad_to_multiple_of", "oversize")
        default = type(section)(**{name: getattr(section, name) for name in limits})
        config = self.config.model_copy(update={"batching": default})
        plan = Planner(self.plan.data.lengths, config.batching_config()).plan(0)
        return plan.stats.efficiency

    def _first(self, sample_ids: Int64Array, length_class: int | None) -> list[int]:
        lengths = self.plan.data.dataset.lengths
        edges = self.plan.data.length_boundaries()

        def order(sample: int) -> tuple[bool, int, int]:
            length = int(lengths[sample])
            is_wanted = (
                length_class is not None
                and length_class + 1 < len(edges)
                and edges[length_class] <= length < edges[length_class + 1]
            )
            return (not is_wanted, -length, sample)

        return sorted(sample_ids.tolist(), key=order)[:MOST_SAMPLES]

    def _row(self, sample: int) -> SampleRow:
        dataset = self.plan.data.dataset
        number, row = dataset.place_of(sample)
        return SampleRow(sample, int(dataset.lengths[sample]), dataset.files[number].path, row)

    def _batches_of(self, number: int, step: int, sample_ids: Int64Array) -> tuple[int, ...]:
        epoch = self.plan.epoch(number)
        missing, found = set(sample_ids.tolist()), []
        for index in reversed(range(epoch.arrivals_by(step))):
            inside = missing.intersection(epoch.arrival(index).tolist())
            found += [index] if inside else []
            missing -= inside
            if not missing:
                break
        return tuple(reversed(found))


def open_plan(run_dir: Path) -> tuple[RunPlan | None, str | None]:
    """The plan of a run, or in a sentence why there is none.

    The config is that of ``train_config.json`` or, in runs without it, of the newest checkpoint.
    """
    values = _config_of(run_dir)
    if values is None:
        return None, f"{run_dir} holds neither {CONFIG_FILE} nor a checkpoint: steps are not named"
    try:
        return _plan_of(values), None
    except (LengthwiseError, OSError) as error:
        return None, f"the run cannot be planned again, so steps are not named: {error}"


def _plan_of(values: dict[str, Any]) -> RunPlan:
    try:
        from lengthwise.dflash.training.config import parse_train_config
        from lengthwise.dflash.training.plan import TrainingPlan
        from lengthwise.dflash.training.setup import load_data
    except ImportError as error:
        raise MissingDependencyError(
            f"planning a run again needs {error.name}: pip install 'lengthwise[dflash]'"
        ) from error
    config = parse_train_config(values)
    return RunPlan(config, TrainingPlan(load_data(config), config))


def _config_of(run_dir: Path) -> dict[str, Any] | None:
    newest_first = sorted((run_dir / "checkpoints").glob("step-*/state.json"), reverse=True)
    for path in (run_dir / CONFIG_FILE, *newest_first):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if path.name != CONFIG_FILE:
            values = values.get("config") if isinstance(values, dict) else None
        if isinstance(values, dict):
            return values
    return None
