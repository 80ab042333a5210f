"""What every epoch consists of: the target's batches, and the drafter's steps that draw from them.

Both are values of data, config and epoch. So a run resumes at any step, every process of a pipeline
knows the whole course without a word from the others, and the number of steps is known beforehand.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lengthwise.core.planner import Planner
from lengthwise.core.remix import RemixPlan, remix
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import TrainingData


class Arrivals(NamedTuple):
    """Sums over batches of the target.

    Attributes:
        num_batches: how many.
        target_tokens: real ones.
        padded_tokens: the same with padding.
        token_squares: of padded tokens times the longest sample.
    """

    num_batches: int
    target_tokens: int
    padded_tokens: int
    token_squares: int


class Epoch:
    """One pass over the data.

    Attributes:
        number: counted from 0.
        mix: which sample takes part in which step, as places in the training data.
    """

    def __init__(self, number: int, mixed: RemixPlan, sample_ids: Int64Array) -> None:
        """Take a plan; ``sample_ids`` says which sample each place is."""
        self.number = number
        self.mix = mixed
        self._sample_ids = sample_ids

    @property
    def num_steps(self) -> int:
        """Optimiser steps."""
        return self.mix.num_steps

    @property
    def num_arrivals(self) -> int:
        """Batches of the target."""
        return len(self.mix.arrivals)

    def arrival(self, index: int) -> Int64Array:
        """Samples of the target's batch ``index``; int64."""
        return self._sample_ids[self.mix.arrivals.batch(index)]

    def arrival_of(self, sample_id: int) -> int:
        """The target's batch that a sample of the epoch is in."""
        return int(self._arrivals_of_samples[sample_id])

    @cached_property
    def _arrivals_of_samples(self) -> Int64Array:
        """By sample id; 8 bytes each, and asked for only where features were lost."""
        arrivals = np.arange(self.num_arrivals)
        places, _ = self.mix.arrivals.gather(arrivals)
        found = np.full(int(self._sample_ids.max()) + 1, -1, np.int64)
        found[self._sample_ids[places]] = np.repeat(arrivals, self.mix.arrivals.sizes)
        return found

    def step(self, index: int) -> Int64Array:
        """Samples of optimiser step ``index``; int64."""
        return self._sample_ids[self.mix.step(index)]

    def for_ranks(self, index: int, num_ranks: int) -> list[Int64Array]:
        """The same, dealt to the drafter's ranks."""
        return [self._sample_ids[part] for part in self.mix.for_ranks(index, num_ranks)]

    def arrivals_by(self, index: int) -> int:
        """Batches of the target that step ``index`` needs to have arrived."""
        return int(self.mix.batches_entered[index])

    def entered(self, index: int) -> Arrivals:
        """What the target runs for step ``index`` that no earlier step needs."""
        begin = self.arrivals_by(index - 1) if index else 0
        part = slice(begin, self.arrivals_by(index))
        arrivals = self.mix.arrivals
        padded = arrivals.padded_tokens[part]
        return Arrivals(
            padded.size,
            int(arrivals.tokens[part].sum()),
            int(padded.sum()),
            int((padded * arrivals.padded[part]).sum()),
        )

    def waiting(self, num_steps: int) -> Int64Array:
        """Samples that have arrived and wait when ``num_steps`` are done; int64."""
        return self._sample_ids[self.mix.waiting(num_steps)]

    def tokens(self, index: int) -> int:
        """Real tokens of optimiser step ``index``."""
        return int(self.mix.steps.tokens[index])


class TrainingPlan:
    """All epochs of a run.

    Args:
        data: what is trained on.
        config: the run's.
    """

    def __init__(self, data: TrainingData, config: TrainConfig) -> None:
        """Set up the planner; an epoch is planned when asked for."""
        longest = int(data.lengths.argmax())
        if data.lengths[longest] > config.batching.max_tokens:
            raise DataError(
                f"sample {data.sample_ids[longest]:,} has {data.lengths[longest]:,} tokens and "
                f"batching.max_tokens is {config.batching.max_tokens:,}: raise it, or leave such "
                f"samples out with batching.oversize: drop"
            )
        self.data = data
        self._config = config
        self._planner = Planner(data.lengths, config.batching_config())
        self._epoch: Epoch | None = None

    def epoch(self, number: int) -> Epoch:
        """The epoch ``number``; the one asked for last is kept."""
        if self._epoch is None or self._epoch.number != number:
            config = self._config
            batches = self._planner.plan(number).batches
            mixed = remix(
                batches,
                self.data.lengths,
                self.data.num_anchors,
                pool_tokens=config.remix.pool_batches * config.batching.max_tokens,
                step_cost=config.step.anchors_per_step,
                seed=config.seed,
                epoch=number,
            )
            self._epoch = Epoch(number, mixed, self.data.sample_ids)
        return self._epoch

    def tokens_until(self, num_steps: int) -> int:
        """Real tokens of the run's first ``num_steps`` optimiser steps."""
        epochs, rest = divmod(num_steps, self.steps_per_epoch)
        tokens = epochs * self.data.num_tokens
        return tokens + (int(self.epoch(epochs).mix.steps.tokens[:rest].sum()) if rest else 0)

    @cached_property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of an epoch, the same in every one."""
        return self.epoch(0).num_steps

    @property
    def num_steps(self) -> int:
        """Optimiser steps of the run."""
        steps = self._config.epochs * self.steps_per_epoch
        most = self._config.max_steps
        return steps if most is None else min(steps, most)

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever an epoch would consist of anything else."""
        facts = {
            "batches": self._planner.fingerprint,
            "samples": hashlib.sha256(self.data.sample_ids.tobytes()).hexdigest(),
            "anchors": hashlib.sha256(self.data.num_anchors.tobytes()).hexdigest(),
            "pool": self._config.remix.pool_batches,
            "step": self._config.step.anchors_per_step,
            "seed": self._config.seed,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
