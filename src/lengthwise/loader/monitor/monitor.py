"""``BatchMonitor``: one call a training step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError
from lengthwise.loader.monitor.ledger import LossLedger
from lengthwise.loader.monitor.schedule import Batch, Schedule, bucket_of
from lengthwise.loader.monitor.throughput import Throughput
from lengthwise.loader.monitor.words import summary_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.plan import EpochPlan
    from lengthwise.core.planner import Planner
    from lengthwise.loader.batch_sampler import BucketBatchSampler
    from lengthwise.loader.monitor.ledger import Loss
    from lengthwise.loader.monitor.writers import Writer

    Lengths = Sequence[int] | Int64Array | torch.Tensor


@dataclass(slots=True)
class _Tally:
    """What a bucket's batches came to."""

    num_batches: int = 0
    real_tokens: int = 0


class BatchMonitor:
    """Counts tokens, foretells the end and keeps a loss curve that can be read.

    Call :meth:`step` once for every batch, on one replica or on each. A step costs the same
    however long the run is, and never waits for a GPU: losses are kept as they are and read
    together every ``interval`` steps, when records go to the writers.

    With a plan, tokens and rates are those of all replicas together, without communication;
    without one, those of the batches given. The guide ``docs/guides/monitor.md`` defines every
    number.

    Args:
        source: a sampler (follows its epochs, and begins where a resumed run stands), a planner,
            the plan of one epoch, or None for batches whose lengths are given to each step.
        boundaries: K + 1 rising integers: the classes that losses are kept apart by. By default the
            plan's, else six classes of equally many batches.
        writers: where records go.
        interval: steps between reading losses and writing.
        half_life: steps after which a step counts half in recent rates and means.
        num_epochs: epochs of the run, for the time left. Default: the current one alone.
        total_tokens: without a plan, real tokens of the run, for the time left.
        rank: this replica, where torch.distributed does not say it.
        initial_step: number of the first step, for a resumed run's records.
        clock: seconds, rising.

    Raises:
        ConfigError: a setting that cannot work.
    """

    def __init__(
        self,
        source: BucketBatchSampler | Planner | EpochPlan | None = None,
        *,
        boundaries: Sequence[int] | None = None,
        writers: Iterable[Writer] = (),
        interval: int = 50,
        half_life: float = 200,
        num_epochs: int | None = None,
        total_tokens: int | None = None,
        rank: int | None = None,
        initial_step: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Nothing is counted yet; see the class."""
        if not half_life > 0:
            raise ConfigError(f"half_life must be above 0 steps, got {half_life!r}")
        self.interval = require_int("interval", interval, least=1)
        self.next_step = require_int("initial_step", initial_step, least=0)
        if num_epochs is not None:
            require_int("num_epochs", num_epochs, least=1)
        self.num_epochs = num_epochs
        self.total_tokens = total_tokens
        self.writers = tuple(writers)
        edges = None if boundaries is None else _edges(boundaries)
        self.schedule = None if source is None else Schedule(source, rank, edges)
        if self.schedule is not None:
            edges = self.schedule.boundaries
        if edges is None:
            raise ConfigError("without a plan the monitor needs boundaries=[...], length classes")
        self.boundaries = edges
        self.ledger = LossLedger(edges.size - 1, half_life)
        self.throughput = Throughput(clock, half_life)
        self.real_tokens = 0
        self.padded_tokens = 0
        self._measured = [0, 0]
        self._tallies = [_Tally() for _ in range(edges.size - 1)]

    def step(
        self,
        batch: int | Lengths | None = None,
        *,
        loss: Loss | None = None,
        per_sample_loss: torch.Tensor | Sequence[float] | None = None,
        lengths: Lengths | None = None,
        measured_padded_tokens: int | None = None,
    ) -> None:
        """A batch is done.

        Args:
            batch: with a plan, nothing (the next batch of this replica) or the batch's index in
                the epoch's plan; without one, the lengths of its samples, shape (num_samples,).
            loss: the batch's loss a token: a number, or a tensor of one element on any device.
            per_sample_loss: losses of the samples, shape (num_samples,), for the mean sample losses
                of the buckets that they lie in. Needs their lengths.
            lengths: with ``per_sample_loss``, the samples' lengths; by default those of ``batch``.
            measured_padded_tokens: elements of the batch that was really made, as
                ``batch["input_ids"].numel()``: shows a collator that pads more than planned.

        Raises:
            ConfigError: the batch is none of the plan, or the wrong kind of ``batch`` is given.
        """
        facts = self._facts(batch, measured_padded_tokens)
        if per_sample_loss is not None:
            self._keep_samples(per_sample_loss, batch if lengths is None else lengths)
        self._count(facts, measured_padded_tokens)
        record = {
            "step": self.next_step,
            "epoch": facts.epoch,
            "bucket": facts.bucket,
            "real_tokens": facts.real_tokens,
            "padded_tokens": facts.padded_tokens,
        }
        self.ledger.keep(record, facts.bucket, loss)
        self.next_step += 1
        if len(self.ledger) >= self.interval:
            self.flush()

    def _facts(self, batch: Any, measured: int | None) -> Batch:
        is_index = isinstance(batch, (int, np.integer))
        if self.schedule is not None:
            if batch is not None and not is_index:
                raise ConfigError(
                    f"with a plan, step takes no batch (the next one) or the batch's index in the "
                    f"plan, got {type(batch).__name__}; lengths are for a monitor without a plan"
                )
            return self.schedule.batch(batch)
        if batch is None or is_index:
            raise ConfigError("without a plan, step needs the lengths of the batch's samples")
        lengths = _array(batch)
        if lengths.size == 0:
            raise ConfigError("a batch has at least one sample, got no lengths")
        real = int(lengths.sum())
        padded = lengths.size * int(lengths.max()) if measured is None else measured
        bucket = int(bucket_of(real // lengths.size, self.boundaries))
        return Batch(None, bucket, real, padded, real)

    def _keep_samples(self, losses: Any, lengths: Any) -> None:
        if lengths is None or isinstance(lengths, (int, np.integer)):
            raise ConfigError("per_sample_loss needs lengths=, one for each sample")
        values = torch.as_tensor(losses).reshape(-1)
        buckets = bucket_of(_array(lengths), self.boundaries)
        if buckets.size != values.numel():
            raise ConfigError(
                f"per_sample_loss has {values.numel()} values for {buckets.size} lengths"
            )
        self.ledger.keep_samples(buckets, values)

    def _count(self, facts: Batch, measured: int | None) -> None:
        self.throughput.step(facts.real_tokens, facts.padded_tokens)
        self.real_tokens += facts.real_tokens
        self.padded_tokens += facts.padded_tokens
        if measured is not None:
            self._measured[0] += facts.own_real_tokens
            self._measured[1] += measured
        tally = self._tallies[facts.bucket]
        tally.num_batches += 1
        tally.real_tokens += facts.own_real_tokens

    def paused(self) -> AbstractContextManager[None]:
        """Leave the time spent inside out of all rates: ``with monitor.paused(): evaluate()``."""
        return self.throughput.paused()

    def flush(self) -> None:
        """Read the losses that are kept and write the records; waits for the device."""
        records = self.ledger.read()
        if records:
            records[-1] |= self._rates()
        for writer in self.writers:
            for record in records:
                writer.write(record)

    def _rates(self) -> dict[str, float | None]:
        return {
            "tokens_per_second": self.throughput.recent(),
            "padded_tokens_per_second": self.throughput.recent(padded=True),
            "efficiency": self.real_tokens / self.padded_tokens if self.padded_tokens else None,
            "eta_seconds": self.eta_seconds,
        }

    @property
    def remaining_tokens(self) -> int | None:
        """Real tokens until the end of the run; None if that is not known."""
        if self.schedule is not None:
            epochs = self.num_epochs or self.schedule.epoch + 1
            return self.schedule.remaining_tokens(epochs)
        if self.total_tokens is None:
            return None
        return max(0, self.total_tokens - self.real_tokens)

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the end of the run at the recent rate; None if that is not known."""
        remaining, rate = self.remaining_tokens, self.throughput.recent()
        return None if remaining is None or not rate else remaining / rate

    def summary(self) -> dict[str, Any]:
        """Everything the monitor knows, as plain numbers; waits for the device.

        Counters are of the steps that this monitor saw. What is not known is None.
        """
        self.flush()
        real, padded = self._measured
        schedule, curve, rate = self.schedule, self.ledger.curve, self.throughput
        return {
            "step": self.next_step,
            "epoch": None if schedule is None else schedule.epoch,
            "epoch_step": None if schedule is None else schedule.next_step,
            "epoch_steps": None if schedule is None else schedule.num_steps,
            "real_tokens": self.real_tokens,
            "padded_tokens": self.padded_tokens,
            **self._rates(),
            "planned_efficiency": None if schedule is None else schedule.efficiency,
            "measured_efficiency": real / padded if padded else None,
            "seconds": rate.seconds,
            "overall_tokens_per_second": rate.overall(),
            "overall_padded_tokens_per_second": rate.overall(padded=True),
            "remaining_tokens": self.remaining_tokens,
            **self.ledger.last,
            "mean_loss": curve.overall.value,
            "jumps_from_buckets": None if curve.jumps is None else curve.jumps.share_of_buckets,
            "num_non_finite_losses": curve.num_non_finite,
            "buckets": [self._bucket(place) for place in range(len(self._tallies))],
        }

    def _bucket(self, place: int) -> dict[str, Any]:
        tally = self._tallies[place]
        return {
            "lo": int(self.boundaries[place]),
            "hi": int(self.boundaries[place + 1]),
            "num_batches": tally.num_batches,
            "real_tokens": tally.real_tokens,
            "mean_loss": self.ledger.curve.buckets[place].value,
            "offset": self.ledger.offset(place),
            "mean_sample_loss": self.ledger.mean_sample_loss(place),
        }

    def line(self) -> str:
        """The summary as one line of text; waits for the device."""
        return summary_line(self.summary())

    def close(self) -> None:
        """Write what is left and close the writers."""
        self.flush()
        for writer in self.writers:
            writer.close()

    def __enter__(self) -> Self:
        """The monitor itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """:meth:`close`, also after an error, so that the last steps are on record."""
        self.close()


def _edges(boundaries: Sequence[int]) -> Int64Array:
    edges = [require_int("a boundary", edge, least=0) for edge in boundaries]
    if len(edges) < 2 or any(np.diff(edges) <= 0):
        raise ConfigError(f"boundaries must be at least two strictly rising integers, got {edges}")
    return np.asarray(edges, np.int64)


def _array(lengths: Any) -> Int64Array:
    values = lengths.cpu() if isinstance(lengths, torch.Tensor) else lengths
    return np.atleast_1d(np.asarray(values, np.int64))
