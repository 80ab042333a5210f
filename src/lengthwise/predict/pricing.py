"""What a batch costs in seconds, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lengthwise.core.cost import FittedCost, evaluate_model, spread
from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.core.cost import CostModel, Float64Array
    from lengthwise.core.limits import Int64Array

_REACH = 1.1
"""Up to so many times the largest measured batch, the measurements vouch for a cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What takes time besides the batches, and how wide an interval is to be.

    Args:
        level: how often an interval is to hold the truth, in (0, 1).
        sync_every: steps that a replica runs before it waits for the others: 1 where every step
            communicates, the accumulation steps where gradients are exchanged once for all of them.
        sync_seconds: what each such meeting takes besides waiting, in seconds: the exchange of
            gradients and the optimiser's step, where the cost does not contain them.
        seconds_per_shape: what a shape (samples, padded length) takes when a run meets it first, in
            seconds: a compiler's work. It is no part of an epoch's seconds.

    Raises:
        ConfigError: a value out of range.
    """

    level: float = 0.9
    sync_every: int = 1
    sync_seconds: float = 0.0
    seconds_per_shape: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not 0 < self.level < 1:
            raise ConfigError(f"level must be between 0 and 1, got {self.level!r}")
        require_int("sync_every", self.sync_every, least=1)
        for name in ("sync_seconds", "seconds_per_shape"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} must be finite and at least 0, got {value!r}")

    def meetings(self, num_steps: float) -> float:
        """How often replicas meet in so many steps."""
        return math.ceil(num_steps / self.sync_every)


@runtime_checkable
class Fit(FittedCost, Protocol):
    """A cost with an error bar that knows what was measured, as a ``CostFit`` does.

    Attributes:
        batch_size: samples of each shape that was measured; int64, shape (S,).
        longest: padded tokens of each sample of these shapes; int64, shape (S,).
    """

    @property
    def batch_size(self) -> Int64Array:
        """Samples of each measured shape."""
        ...

    @property
    def longest(self) -> Int64Array:
        """Padded tokens of each sample of these shapes."""
        ...


@dataclass(frozen=True, slots=True)
class Pricing:
    """Seconds of batches.

    Attributes:
        model: the cost model.
        fit: where the model comes from; None where it has no error bar.
        level: how often an interval is to hold the truth.
    """

    model: CostModel
    fit: Fit | None
    level: float

    @classmethod
    def of(cls, cost: Fit | CostModel, level: float) -> Pricing:
        """From a fit, or from a cost model alone, which then has no interval.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(cost, Fit):
            return cls(cost.cost, cost, level)
        if callable(cost):
            return cls(cost, None, level)
        raise ConfigError(
            f"cost must be a fit (lengthwise.calibrate) or a cost model that returns seconds, such "
            f"as StepTime; got {cost!r}"
        )

    def seconds(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Seconds of every batch, shape (B,).

        Raises:
            ConfigError: the model returns no proper seconds.
        """
        return evaluate_model(self.model, batch_size, longest)

    def spread(self, batch_size: Int64Array, longest: Int64Array) -> tuple[float, float] | None:
        """The interval of the sum over batches, as shares of that sum; None without a fit."""
        return None if self.fit is None else spread(self.fit, batch_size, longest, self.level)

    def extrapolated(self, batch_size: Int64Array, longest: Int64Array) -> float | None:
        """Share of the seconds in batches that no measurement vouches for; None without a fit.

        Those are larger or longer by more than a tenth than any that was measured.
        """
        if self.fit is None:
            return None
        most_tokens = _REACH * int((self.fit.batch_size * self.fit.longest).max())
        most = _REACH * int(self.fit.longest.max())
        beyond = (batch_size * longest > most_tokens) | (longest > most)
        seconds = self.seconds(batch_size, longest)
        return float(seconds[beyond].sum() / seconds.sum())
